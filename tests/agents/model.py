"""A model that answers by a script, so that real agents work without an account.

    python3 model.py SCRIPT LOG

Prints its port and serves on 127.0.0.1 until standard input ends. SCRIPT is a JSON list of turns; each turn of the agent's main conversation
takes the next one:

    {"call": "TOOL", "with": {...}}          the model calls a tool
    {"calls": [{"call": ..., "with": ...}]}  several at once
    {"say": "TEXT"}                          the model answers, and the agent's turn ends
    {"status": 529}                          the service fails this once

"$PREVIOUS" in a string stands for the text of the last tool's result. After the last turn the model says "done". Requests that offer no tools
(titles, summaries) take no turn. Three interfaces are served: Messages (/v1/messages, count_tokens), Responses (/v1/responses) and generateContent
(/v1beta/models/MODEL:streamGenerateContent), streamed or not. Every answer states its usage: 100 tokens read, 20 written, 7 from a cache.

POST to any path that ends in /token hands out two new tokens for a refresh token (one with R3fresh in it).

LOG gets a line of JSON for each request: method, path, the headers that may carry keys, offered tools, results of tools, the beginning of what was
said so far, and the whole body's length. POST /collect keeps what anybody sends it there, under "collected".
"""

import http.server
import json
import socketserver
import sys
import threading

READ, WRITTEN, CACHED = 100, 20, 7
# What of a message is written down.
SAID = 500
NEW_ACCESS = "sk-ant-oat01-n3wAcc3ssT0kenFromTheServer-0123456789abcdefghijklmno"
NEW_REFRESH = "sk-ant-ort01-n3wR3freshT0kenFromTheServer-0123456789abcdefghijklmn"
KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key")


class Script:
    """The turns, in order, for all connections."""

    def __init__(self, turns):
        self.turns, self.next, self.lock = turns, 0, threading.Lock()

    def take(self, previous):
        with self.lock:
            number = self.next
            turn = self.turns[number] if number < len(self.turns) else {"say": "done"}
            self.next += 1
        return number, filled(turn, previous)


def filled(value, previous):
    if isinstance(value, str):
        return value.replace("$PREVIOUS", previous)
    if isinstance(value, list):
        return [filled(item, previous) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, previous) for name, item in value.items()}
    return value


def calls_of(turn):
    return turn["calls"] if "calls" in turn else [turn] if "call" in turn else []


def text_of(content):
    """The text of a tool's result, however it is wrapped."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(text_of(part) for part in content)
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or content.get("output") or "")
    return ""


class Messages:
    """The Messages interface."""

    usage = {"input_tokens": READ, "output_tokens": WRITTEN, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0}

    @staticmethod
    def results(request):
        found = []
        # A reminder may stand behind them, as a message of its own.
        for message in reversed(request.get("messages") or []):
            if message.get("role") == "assistant":
                break
            blocks = message.get("content") if isinstance(message.get("content"), list) else []
            found = [text_of(block.get("content")) for block in blocks if block.get("type") == "tool_result"] + found
        return found

    @staticmethod
    def said(request):
        return [text_of(message.get("content"))[:SAID] for message in request.get("messages") or []]

    @classmethod
    def answer(cls, request, number, turn):
        blocks = [{"type": "tool_use", "id": f"toolu_{number:03}_{index}", "name": call["call"], "input": call.get("with", {})}
                  for index, call in enumerate(calls_of(turn))]
        blocks = blocks or [{"type": "text", "text": turn.get("say", "")}]
        reason = "tool_use" if calls_of(turn) else "end_turn"
        message = {"id": f"msg_{number:03}", "type": "message", "role": "assistant", "model": request.get("model", "scripted"),
                   "content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": cls.usage}
        if not request.get("stream"):
            return message, None
        beginning = dict(message, content=[], stop_reason=None, usage=dict(cls.usage, output_tokens=1))
        events = [{"type": "message_start", "message": beginning}, {"type": "ping"}]
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                empty, pieces = dict(block, text=""), [{"type": "text_delta", "text": block["text"]}]
            else:
                text = json.dumps(block["input"])
                # In two pieces, as a real one comes.
                halves = [text[: len(text) // 2], text[len(text) // 2:]]
                empty, pieces = dict(block, input={}), [{"type": "input_json_delta", "partial_json": half} for half in halves]
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events.extend({"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces)
            events.append({"type": "content_block_stop", "index": index})
        events.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": WRITTEN}})
        events.append({"type": "message_stop"})
        return None, events


class Responses:
    """The Responses interface."""

    usage = {"input_tokens": READ + CACHED, "input_tokens_details": {"cached_tokens": CACHED}, "output_tokens": WRITTEN,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": READ + CACHED + WRITTEN}

    @staticmethod
    def results(request):
        items = request.get("input")
        items = items if isinstance(items, list) else []
        found = []
        for item in reversed(items):
            if item.get("type") in ("function_call_output", "custom_tool_call_output"):
                found.insert(0, text_of(item.get("output")))
            elif found:
                break
        return found

    @staticmethod
    def said(request):
        items = request.get("input")
        items = items if isinstance(items, list) else []
        return [text_of(item.get("content"))[:SAID] for item in items if item.get("type") == "message"]

    @classmethod
    def answer(cls, request, number, turn):
        # Tools of MCP servers are in a namespace each: "SPACE.TOOL".
        named = [call["call"].rpartition(".") for call in calls_of(turn)]
        items = [{"type": "function_call", "id": f"fc_{number:03}_{index}", "call_id": f"call_{number:03}_{index}", "name": name,
                  **({"namespace": space} if space else {}), "arguments": json.dumps(call.get("with", {})), "status": "completed"}
                 for index, (call, (space, _, name)) in enumerate(zip(calls_of(turn), named))]
        text = {"type": "output_text", "text": turn.get("say", ""), "annotations": []}
        items = items or [{"type": "message", "id": f"msg_{number:03}", "role": "assistant", "status": "completed", "content": [text]}]
        whole = {"id": f"resp_{number:03}", "object": "response", "status": "completed", "model": request.get("model", "scripted"),
                 "output": items, "usage": cls.usage}
        if not request.get("stream"):
            return whole, None
        beginning = dict(whole, status="in_progress", output=[], usage=None)
        events = [{"type": "response.created", "response": beginning}]
        for index, item in enumerate(items):
            events.append({"type": "response.output_item.added", "output_index": index, "item": dict(item, status="in_progress")})
            if item["type"] == "message":
                events.append({"type": "response.output_text.delta", "item_id": item["id"], "output_index": index, "content_index": 0, "delta": text["text"]})
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        events.append({"type": "response.completed", "response": whole})
        for sequence, event in enumerate(events):
            event["sequence_number"] = sequence
        return None, events


class Generate:
    """The generateContent interface."""

    usage = {"promptTokenCount": READ + CACHED, "cachedContentTokenCount": CACHED, "candidatesTokenCount": WRITTEN,
             "totalTokenCount": READ + CACHED + WRITTEN}

    @staticmethod
    def tools(request):
        return [tool.get("name") for group in request.get("tools") or [] for tool in group.get("functionDeclarations") or []]

    @staticmethod
    def results(request):
        parts = (request.get("contents") or [{}])[-1].get("parts") or []
        return [text_of(part["functionResponse"].get("response")) for part in parts if "functionResponse" in part]

    @staticmethod
    def said(request):
        return [text_of(content.get("parts"))[:SAID] for content in request.get("contents") or []]

    @classmethod
    def answer(cls, request, number, turn):
        parts = [{"functionCall": {"id": f"call_{number:03}_{index}", "name": call["call"], "args": call.get("with", {})}}
                 for index, call in enumerate(calls_of(turn))]
        parts = parts or [{"text": turn.get("say", "")}]
        whole = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
                 "usageMetadata": cls.usage, "modelVersion": request.get("model", "scripted"), "responseId": f"resp_{number:03}"}
        return (None, [whole]) if request.get("stream") else (whole, None)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.note({})
        self.send(200, "application/json", b'{"data": [], "models": []}')

    def do_HEAD(self):
        self.send(200, "application/json", b"")

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        if path == "/collect":
            self.note({"collected": raw.decode("utf-8", "replace")})
            return self.send(200, "text/plain", b"thanks\n")
        try:
            request = json.loads(raw or b"{}")
        except ValueError:
            request = {}
        if path.endswith("/token"):
            # As lenient about the path as a server may be.
            old = str(request.get("refresh_token"))
            self.note({"refreshed": old})
            if "R3fresh" not in old:
                return self.send(400, "application/json", b'{"error": "invalid_grant"}')
            tokens = {"access_token": NEW_ACCESS, "refresh_token": NEW_REFRESH, "expires_in": 3600, "token_type": "Bearer"}
            return self.send(200, "application/json", json.dumps(tokens).encode())
        if path.endswith("/count_tokens"):
            self.note({})
            return self.send(200, "application/json", b'{"input_tokens": 3}')
        interface = Messages if path.endswith("/messages") else Responses if path.endswith("/responses") else None
        if path.lower().endswith("generatecontent"):
            interface = Generate
            # Which model, and whether in pieces, is said by the path.
            request["model"] = path.rsplit("/", 1)[-1].split(":")[0]
            request["stream"] = path.endswith(":streamGenerateContent")
        if interface is None:
            self.note({"length": len(raw)})
            return self.send(200, "application/json", b'{"totalTokens": 3}' if path.endswith(":countTokens") else b"{}")
        tools = [tool.get("name") or tool.get("type") for tool in request.get("tools") or []]
        tools = interface.tools(request) if interface is Generate else tools
        results = interface.results(request)
        self.note({"tools": tools, "results": results, "length": len(raw), "model": request.get("model"), "said": interface.said(request)})
        number, turn = self.server.script.take(results[-1] if results else "") if tools else (0, {"say": "ok"})
        if "status" in turn:
            error = {"type": "error", "error": {"type": "overloaded_error", "message": "scripted"}}
            return self.send(turn["status"], "application/json", json.dumps(error).encode())
        whole, events = interface.answer(request, number, turn)
        if whole is not None:
            return self.send(200, "application/json", json.dumps(whole).encode())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            piece = f"{name}data: {json.dumps(event)}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def note(self, more):
        keys = {name: self.headers[name] for name in KEY_HEADERS if self.headers.get(name)}
        line = json.dumps(dict({"method": self.command, "path": self.path, "keys": keys}, **more))
        with self.server.script.lock:
            self.server.log.write(line + "\n")
            self.server.log.flush()

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        # Agents close connections when they like.
        pass


def main():
    script, log = sys.argv[1:3]
    server = Server(("127.0.0.1", 0), Handler)
    with open(script, encoding="utf-8") as file:
        server.script = Script(json.load(file))
    server.log = open(log, "a", encoding="utf-8")
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
