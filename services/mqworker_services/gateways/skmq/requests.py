"""What a frame asks for. Pure: frame in, request out, or the answer to a frame that asks for nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mqworker.errors import InvalidArgument
from mqworker.queues.skmq.frame import Frame
from mqworker.queues.skmq.names import (
    TO_ALL,
    TO_ONE,
    Recipient,
    message_id_of,
    parse_recipient,
    queue_of_app,
    recipient_key,
)
from mqworker_services.gateways.skmq.replies import ACK, ERROR, Answer, invalid_parameters

LARGEST_CONTENT_BYTES = 1024 * 1024
"""What the store keeps of one message at the most; a frame may be larger only in what surrounds it."""


class Feedback(StrEnum):
    """What a consumer says of a message that was pushed to it."""

    ARRIVED = "arrived"
    ACK = "ack"
    REJECT = "reject"
    ERROR = "error"


@dataclass(slots=True)  # not frozen: twenty thousand are made each second
class Send:
    """Store a message for one recipient of an app, or for all of them."""

    task: str
    queue: str
    msgid: str
    stem: str
    """How the id of the stored message begins; the rest tells it from an earlier one of the same msgid."""
    content: bytes


@dataclass(frozen=True, slots=True)
class Register:
    """Let a recipient take part."""

    recipient: Recipient


@dataclass(frozen=True, slots=True)
class MessageFeedback:
    """A consumer's word on a message; which of a topic's copies is meant, the key of a recipient may say."""

    feedback: Feedback
    msgid: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """The token, where one is asked for: an addition to the document."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """No request: this is the answer to it."""

    answer: Answer


Request = Send | Register | MessageFeedback | Login | Refused

_TASK_BY_TYPE = {"queue": TO_ONE, "topic": TO_ALL}
_FEEDBACK = {feedback.value for feedback in Feedback}


def request_of(frame: Frame) -> Request:
    """What to do about a frame."""
    if frame.type in _TASK_BY_TYPE:
        return _send(frame)
    if frame.type in _FEEDBACK:
        return _verdict(frame)
    match frame.type:
        case "register":
            return _register(frame)
        case "auth":
            return Login(frame.content)
        case _:
            return Refused(Answer("error", f"unknown type: {frame.type[:100]}"))


def _send(frame: Frame) -> Send | Refused:
    if not frame.msgid:
        return Refused(Answer("reject", "msgid required"))
    if not frame.appid:
        return Refused(Answer("reject", "appid required"))
    if len(frame.content) > LARGEST_CONTENT_BYTES:
        return Refused(Answer("reject", f"content too large: up to {LARGEST_CONTENT_BYTES} bytes"))
    task = _TASK_BY_TYPE[frame.type]
    try:
        stem = message_id_of(frame.msgid, task, "")
        queue = queue_of_app(frame.appid)
    except InvalidArgument as error:
        return Refused(Answer("reject", f"Invalid parameters: {error}"))
    return Send(task, queue, frame.msgid, stem, frame.content)


def _verdict(frame: Frame) -> MessageFeedback | Refused:
    feedback = Feedback(frame.type)
    try:
        message_id_of(frame.msgid, TO_ONE, "")
        return MessageFeedback(feedback, frame.msgid, recipient_key(frame.rid) if frame.rid else "")
    except InvalidArgument:  # no message can have this id
        return Refused(unknown_message(feedback))


def unknown_message(feedback: Feedback) -> Answer:
    """To a reply about an unknown message: it is settled, or never existed."""
    return ERROR if feedback is Feedback.ARRIVED else ACK


def _register(frame: Frame) -> Register | Refused:
    try:
        return Register(parse_recipient(frame.content))
    except InvalidArgument:
        return Refused(invalid_parameters(frame.content))
