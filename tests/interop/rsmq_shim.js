// The interface of the npm package `rsmq`, with mqworker behind it: for running that package's own tests on us.
// Each instance has a Python process (rsmq_shim.py), which answers one JSON line for each line, in order.
"use strict";

const { spawn } = require("child_process");
const Module = require("module");
const readline = require("readline");

// The tests make a Redis client on the usual port, only to hand it over; we are told another server.
const load = Module._load;
Module._load = (request, ...rest) =>
  request === "redis" ? { createClient: () => ({}) } : load(request, ...rest);

const OPERATIONS = [
  "createQueue", "listQueues", "deleteQueue", "getQueueAttributes", "setQueueAttributes", "sendMessage",
  "receiveMessage", "popMessage", "deleteMessage", "changeMessageVisibility",
];

class RedisSMQ {
  constructor() {
    this.waiting = [];
    this.python = spawn(process.env.SHIM_PYTHON, ["-m", "tests.interop.rsmq_shim"], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    readline.createInterface({ input: this.python.stdout }).on("line", (line) => {
      const { error, result } = JSON.parse(line);
      const answer = this.waiting.shift();
      if (error) answer(Object.assign(new Error(error.message), { name: error.name }));
      else answer(null, result);
    });
    // Bound: the tests pass them around as plain functions.
    for (const operation of OPERATIONS) this[operation] = (...given) => this.ask(operation, ...given);
  }

  ask(operation, options, answer) {
    if (typeof options === "function") return this.ask(operation, {}, options);
    this.waiting.push(answer);
    this.python.stdin.write(`${JSON.stringify({ operation, options })}\n`);
  }

  quit() {
    this.python.stdin.end();
  }
}

module.exports = RedisSMQ;
