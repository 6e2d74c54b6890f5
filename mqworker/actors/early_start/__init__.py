"""Early start: an idle worker begins what is handed over to it before the dispatcher has read of it."""
