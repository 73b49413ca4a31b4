"""A stand-in for the agent: the worker's directory with page and socket, and readers of what the
worker writes."""

import os
import shutil
import socket
import struct
import tempfile
import threading

PAGE_BYTES, PAGE_MAGIC = 4096, 0x31454741504F4E52
PREPARE, ARM, DROP = 1, 2, 3
SAVE, STOP = 16, 40  # offsets of the gates
SAVE_ANSWERED, STOP_ANSWERED, REPORTS, JOINED, FINISHED, SAVING = 64, 72, 80, 88, 92, 96
KINDS = {2: "save_dir", 3: "commit", 4: "abort", 7: "stage", 8: "staged"}


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(field, value):
    return varint(field << 3) + varint(value)


def bytes_field(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def fields(data):
    """[(number, value)] of a message; value is an int or bytes."""
    at, out = 0, []

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = take()
        if key & 7 == 0:
            out.append((key >> 3, take()))
        else:
            assert key & 7 == 2
            length = take()
            out.append((key >> 3, data[at : at + length]))
            assert len(out[-1][1]) == length
            at += length
    return out


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def unzigzag(value):
    return value >> 1 ^ -(value & 1)


def report_of(data):
    """dict(step, samples, t_us, values={name: float or int}) of a packed Report."""
    names, doubles, integers, out = [], [], [], {}
    for number, value in fields(data):
        if number in (1, 2, 3):
            out[{1: "step", 2: "samples", 3: "t_us"}[number]] = value
        elif number == 4:
            names.append(value.decode())
        elif number == 5:
            doubles = list(struct.unpack(f"<{len(value) // 8}d", value))
        elif number == 6:
            integers = [unzigzag(v) for v in packed_varints(value)]
    out["values"] = dict(zip(names, doubles + integers, strict=True))
    return out


def packed_varints(data):
    out, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            out.append(value)
            value = shift = 0
    return out


class AgentModel:
    """Owns a directory. `answer` (kind, step, samples) -> dict(status=, error=, dir=), or None to
    say nothing."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="rondo-worker-")
        self.asks, self.sizes = [], []  # sizes: of the slots that were asked for
        self.no_wait = []  # of the same asks
        self.listener = None
        self.threads = []
        self.connections = []
        self.answer = lambda kind, step, samples: {}
        page = bytearray(PAGE_BYTES)
        struct.pack_into("<QII", page, 0, PAGE_MAGIC, 1, os.getpid())
        struct.pack_into("<qq", page, SAVE_ANSWERED, -1, -1)
        with open(self.dir + "/page", "wb") as file:
            file.write(page)

    def environment(self, rank=0, world=1, **more):
        return {
            "RONDO_DIR": self.dir,
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "RONDO_JOB": "7",
            "RONDO_ATTEMPT": "2",
            "RONDO_ROLE": "trainer",
            **more,
        }

    # --- page
    def read(self, offset, form):
        with open(self.dir + "/page", "rb") as file:
            return struct.unpack_from(form, file.read(), offset)[0]

    def write(self, offset, form, *values):
        with open(self.dir + "/page", "r+b") as file:
            file.seek(offset)
            file.write(struct.pack(form, *values))

    def gate(self, place, number, step, phase):
        self.write(place + 16, "<I", 0)
        self.write(place + 8, "<q", step)
        self.write(place + 16, "<I", phase)
        self.write(place, "<Q", number)

    # --- records
    def records(self):
        """[(number, bytes or int)] of each whole record."""
        with open(self.dir + "/reports", "rb") as file:
            data = file.read()
        at, out = 0, []
        while len(data) - at >= 8:
            length, crc = struct.unpack_from("<II", data, at)
            body = data[at + 8 : at + 8 + length]
            if len(body) < length:
                break
            assert crc32c(body) == crc
            out.extend(fields(body))
            at += 8 + length
        return out

    def reports(self):
        return [report_of(value) for number, value in self.records() if number == 1]

    def failures(self):
        return [dict(fields(value)) for number, value in self.records() if number == 2]

    # --- socket
    def start(self):
        self.listener = socket.socket(socket.AF_UNIX)
        path = self.dir + "/sock"
        if os.path.exists(path):
            os.unlink(path)
        self.listener.bind(path)
        self.listener.listen(8)
        self.spawn(self.accept, self.listener)

    def spawn(self, run, *arguments):
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        thread.start()
        self.threads.append(thread)

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self.spawn(self.serve, connection)

    def serve(self, connection):
        try:
            while True:
                head = connection.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                body = connection.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)
                ask = dict(fields(body))
                assert ask[1] == 1
                kind = KINDS[ask[3]]
                self.asks.append((kind, ask[4], ask.get(5)))
                if kind == "stage":
                    self.sizes.append(ask[7])
                    self.no_wait.append(ask.get(9, 0))
                said = self.answer(kind, ask[4], ask.get(5))
                if said is not None:
                    connection.sendall(self.encode(ask[2], said))
        except OSError:
            return

    @staticmethod
    def encode(number, said):
        body = number_field(1, number) + number_field(2, said.get("status", 0))
        if "error" in said:
            body += bytes_field(3, said["error"].encode())
        if "dir" in said:
            body += bytes_field(4, said["dir"].encode())
        return struct.pack("<I", len(body)) + body

    def stop(self):
        """As if killed: the listener and every connection go away."""
        if self.listener:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()
        self.connections.clear()

    def close(self):
        self.stop()
        for thread in self.threads:
            thread.join(10)
        shutil.rmtree(self.dir)
