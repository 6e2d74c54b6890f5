// Calls a GOMQ gateway as any Node.js program would: one JSON line in, one out.
'use strict';
const [modules, proto, target] = process.argv.slice(2);
const grpc = require(`${modules}/@grpc/grpc-js`);
const { routeguide } = grpc.loadPackageDefinition(
  require(`${modules}/@grpc/proto-loader`).loadSync(proto, { keepCase: true, defaults: true }),
);
const client = new routeguide.RouteGuide(target, grpc.credentials.createInsecure());
const call = (method, request) =>
  new Promise((resolve) => {
    client[method](request, { deadline: Date.now() + 30000 }, (error, response) =>
      resolve(error ? { error: grpc.status[error.code], text: error.details } : response),
    );
  });
const encode = (record) => ({ ...record, payload: record.payload.toString('base64') });

require('node:readline').createInterface({ input: process.stdin }).on('line', async (line) => {
  const { method, request, times = 1 } = JSON.parse(line);
  if (request.payload) request.payload = Buffer.from(request.payload, 'base64');
  const answers = await Promise.all(Array.from({ length: times }, () => call(method, request)));
  for (const { records = [] } of answers) for (const each of records) each.value = encode(each.value);
  console.log(JSON.stringify(answers));
});
