// Drives the npm package `rsmq` from a test: one JSON line in, one JSON line out.
// In:  {"operation": "sendMessage", "options": {...}}
// Out: {"result": ...} or {"error": {"name": ..., "message": ...}}
"use strict";

const readline = require("readline");
const [modules, port] = process.argv.slice(2);
const RedisSMQ = require(`${modules}/rsmq`);

const rsmq = new RedisSMQ({ host: "127.0.0.1", port: Number(port), ns: "rsmq" });

// Receives and deletes until nothing was visible for a while; answers with what it deleted itself.
async function drain({ qname, idleTurns }) {
  const done = [];
  let idle = 0;
  while (idle < idleTurns) {
    const received = await rsmq.receiveMessageAsync({ qname, vt: 300 });
    if (!received.id) {
      idle += 1;
      await new Promise((wake) => setTimeout(wake, 10));
      continue;
    }
    idle = 0;
    if ((await rsmq.deleteMessageAsync({ qname, id: received.id })) === 1) done.push(received.message);
  }
  return done;
}

async function answer(line) {
  const { operation, options } = JSON.parse(line);
  try {
    const call = operation === "drain" ? drain : (given) => rsmq[`${operation}Async`](given);
    return { result: await (operation === "listQueues" ? rsmq.listQueuesAsync() : call(options)) };
  } catch (error) {
    return { error: { name: error.name, message: error.message } };
  }
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
  }
  process.exit(0);
})();
