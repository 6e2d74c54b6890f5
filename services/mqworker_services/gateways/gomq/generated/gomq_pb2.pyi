from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishRecord(_message.Message):
    __slots__ = ("key", "payload")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    key: str
    payload: bytes
    def __init__(self, key: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("key", "consumerID")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CONSUMERID_FIELD_NUMBER: _ClassVar[int]
    key: str
    consumerID: str
    def __init__(self, key: _Optional[str] = ..., consumerID: _Optional[str] = ...) -> None: ...

class Identification(_message.Message):
    __slots__ = ("consumerID",)
    CONSUMERID_FIELD_NUMBER: _ClassVar[int]
    consumerID: str
    def __init__(self, consumerID: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: int
    def __init__(self, code: _Optional[int] = ...) -> None: ...

class RecordSet(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: Message
    def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Message, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "timestamp", "payload")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    id: str
    timestamp: str
    payload: bytes
    def __init__(self, id: _Optional[str] = ..., timestamp: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...
