// BullMQ on Node: `produce` answers the commands of bench_driver.py, `work` is one worker process.
//
// The board (bench_board.py) is written with pwrite, because Node maps no files: some microseconds more per task
// than the others pay, which is said in docs/benchmarks.
import fs from "node:fs";
import { createRequire } from "node:module";
import readline from "node:readline";

const require = createRequire(`${process.env.BENCH_MODULES}/`);
const { Queue, Worker } = require("bullmq");

const env = process.env;
const url = new URL(env.BENCH_REDIS_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const isSafe = env.BENCH_VARIANT === "safe";
const isWaiting = env.BENCH_BODY === "100 ms waiting";
const concurrency = isWaiting ? 100 : 50;
const many = Number(env.BENCH_QUEUES);
const queueNames = many > 1 ? Array.from({ length: many }, (_, number) => `q${number}`) : ["bench"];
const batchSize = 500;
const bodies = {
  nothing: ["stamp", {}],
  "1 ms CPU": ["burn", { ms: 1 }],
  "5 ms CPU": ["burn", { ms: 5 }],
  "10 ms CPU": ["burn", { ms: 10 }],
  "50 ms CPU": ["burn", { ms: 50 }],
  "100 ms waiting": ["rest", { ms: 100 }],
  "10 kB arguments": ["carry", { text: "x".repeat(10_000) }],
};

const board = fs.openSync(env.BENCH_BOARD, "r+");
const capacity = Math.floor(fs.fstatSync(board).size / 17);
const runs = Buffer.alloc(1);
const instant = Buffer.alloc(8);

function note(offset) {
  instant.writeBigInt64LE(process.hrtime.bigint());
  fs.writeSync(board, instant, 0, 8, offset);
}

function noteRun(index) {
  fs.readSync(board, runs, 0, 1, index);
  if (runs[0] === 0) note(capacity * 9 + 8 * index);
  runs[0] += 1;
  fs.writeSync(board, runs, 0, 1, index);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const seconds = () => Number(process.hrtime.bigint()) / 1e9;

async function run({ name, data }) {
  if (name === "burn") {
    const usage = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1000; };
    const end = usage() + data.ms;
    while (usage() < end);
  } else if (name === "rest") {
    await pause(data.ms);
  }
  noteRun(data.index);
}

function work() {
  const limits = isSafe ? { lockDuration: 5_000, stalledInterval: 5_000, maxStalledCount: 10 } : {};
  const workers = queueNames.map((name) => new Worker(name, run, { connection, concurrency, ...limits }));
  process.on("SIGTERM", async () => {
    await Promise.all(workers.map((worker) => worker.close()));
    process.exit(0);
  });
}

function produce() {
  const options = { removeOnComplete: true, removeOnFail: true };
  const queues = queueNames.map((name) => new Queue(name, { connection, defaultJobOptions: options }));
  const of = (index) => queues[index % queues.length];
  const jobs = (body, first, end) => {
    const [name, data] = bodies[body];
    return Array.from({ length: end - first }, (_, number) => ({ name, data: { index: first + number, ...data } }));
  };
  const addOne = (body, index) => {
    const [{ name, data }] = jobs(body, index, index + 1);
    return of(index).add(name, data);
  };
  const addMany = async (body, first, end) => {
    for (const queue of queues) {
      const part = jobs(body, first, end).filter(({ data }) => of(data.index) === queue);
      if (part.length) await queue.addBulk(part);
    }
  };
  const timed = async (first, most, limit, step, send) => {
    const began = seconds();
    let index = first;
    while (index < first + most && seconds() - began < limit) {
      const end = Math.min(index + step, first + most);
      await send(index, end);
      index = end;
    }
    return { count: index - first, seconds: seconds() - began };
  };
  const commands = {
    describe: () => ({
      worker: { argv: ["node", "bullmq_peer.mjs", "work"], copies: Number(env.BENCH_WORKERS) },
      settings: [
        "concurrency 50, removeOnComplete",
        ...(isSafe ? ["lockDuration and stalledInterval 5 s, maxStalledCount 10: lost jobs are looked for often"] : []),
        "100 ms waiting: concurrency 100",
        "marks the board by pwrite: Node maps no files",
      ],
      bulk: "addBulk(500)",
      drain_hint: 11_000,
      has_queues: true,
      versions: Object.fromEntries([
        ...["bullmq", "ioredis"].map((name) => [name, require(`${name}/package.json`).version]),
        ["node", process.versions.node],
      ]),
    }),
    single: ({ body, first, most, seconds: limit }) =>
      timed(first, most, limit, 1, (index) => addOne(body, index)),
    bulk: ({ body, first, most, seconds: limit }) =>
      timed(first, most, limit, batchSize, (index, end) => addMany(body, index, end)),
    paced: async ({ first, count, rate, batch }) => {
      const began = seconds();
      for (let index = first; index < first + count; index += batch) {
        const wait = began + (index - first) / rate - seconds();
        if (wait > 0) await pause(wait * 1000);
        const end = Math.min(index + batch, first + count);
        for (let number = index; number < end; number += 1) note(capacity + 8 * number);
        await (batch === 1 ? addOne("nothing", index) : addMany("nothing", index, end));
      }
      return { count, seconds: seconds() - began };
    },
  };
  const lines = readline.createInterface({ input: process.stdin });
  // One command at a time: the harness waits for each answer.
  lines.on("line", async (line) => {
    const { do: verb, ...rest } = JSON.parse(line);
    process.stdout.write(`${JSON.stringify(await commands[verb](rest))}\n`);
  });
  lines.on("close", () => process.exit(0));
}

({ work, produce })[process.argv[2]]();
