-- dead: the dead letters of a queue, in side keys: foreign clients never see them.
-- Needs: nothing.

local dead, letters, buried = KEYS[6], KEYS[7], KEYS[8] -- id -> message; id -> why, as JSON; id -> buried at, ms
