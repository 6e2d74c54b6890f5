"""The SKMQ gateway: SIKONG-MQ's protocol over TCP outwards, mail to broker and dispatcher inwards."""
