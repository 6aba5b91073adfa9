// Feeds traces to Perfetto's trace processor, compiled to WebAssembly, and prints the rows of SQL queries as JSON, a line for each
// query of each trace: node perfetto_query.js FOLDER_OF_THE_PAGE QUERY... -- TRACE...
const fs = require('fs'), path = require('path'), vm = require('vm');
const [site, ...rest] = process.argv.slice(2);
const queries = rest.slice(0, rest.indexOf('--')), traces = rest.slice(rest.indexOf('--') + 1);

// Messages of the processor are protocol buffers.
const varint = number => {
  const bytes = [];
  for (number = BigInt(number); number > 127n; number >>= 7n) bytes.push(Number(number & 127n) | 128);
  return Buffer.from([...bytes, Number(number)]);
};
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);
const readVarint = (data, at) => {
  for (let value = 0n, shift = 0n; ; shift += 7n) {
    const byte = BigInt(data[at++]);
    value |= (byte & 127n) << shift;
    if (byte < 128n) return [value, at];
  }
};
const fields = data => {
  const found = {};
  for (let at = 0, tag, value; at < data.length; ) {
    [tag, at] = readVarint(data, at);
    if ((tag & 7n) === 0n) [value, at] = readVarint(data, at);
    else {
      let length = (tag & 7n) === 1n ? 8 : 4;
      if ((tag & 7n) === 2n) [length, at] = readVarint(data, at).map(Number);
      value = data.subarray(at, at += length);
    }
    (found[tag >> 3n] ??= []).push(value);
  }
  return found;
};

// The processor is a worker of the page: what it expects there.
const quiet = () => {};
const file = name => fs.readFileSync(path.join(site, path.basename(String(name))));
class XMLHttpRequest {
  open(_, name) { this.name = name; }
  send() { [this.response, this.status] = [new Uint8Array(file(this.name)).buffer, 200]; }
}

// Starts a processor, and waits until it can take messages: it compiles its code without being waited for.
async function start(reply) {
  const self = { location: { href: 'http://localhost/engine_bundle.js' } }, port = { postMessage: reply };
  const console = { log: quiet, warn: quiet, error: quiet, info: quiet };
  const world = vm.createContext({ self, location: self.location, WorkerGlobalScope: class {}, importScripts: quiet, XMLHttpRequest, console,
    WebAssembly, performance, Uint8Array, TextDecoder, TextEncoder, URL, Promise, TypeError, RangeError, BigInt, setTimeout, clearTimeout, crypto });
  vm.runInContext(file('engine_bundle.js').toString(), world);
  self.onmessage({ data: port });
  await new Promise(done => setTimeout(done, 500));
  return port;
}

(async () => {
  let pending = Buffer.alloc(0), columns = [], cells = [];
  const port = await start(data => {
    pending = Buffer.concat([pending, Buffer.from(data)]);
    while (pending.length) {
      const [length, at] = readVarint(pending, 1);
      if (pending.length < at + Number(length)) return;
      const answer = fields(pending.subarray(at, at + Number(length)));
      pending = pending.subarray(at + Number(length));
      for (const result of (answer[203] ?? []).map(fields)) {
        if (result[2]?.[0]?.length) throw new Error(result[2][0].toString());
        columns = result[1] ?? columns;
        for (const batch of (result[3] ?? []).map(fields)) {
          const numbers = Buffer.concat(batch[2] ?? []), texts = Buffer.concat(batch[5] ?? []).toString().split('\0');
          let next = 0, value;
          for (const kind of Buffer.concat(batch[1] ?? [])) {
            if (kind === 1) value = null;
            else if (kind === 2) [value, next] = readVarint(numbers, next);
            else if (kind === 4) value = texts.shift();
            else throw new Error('a cell of kind ' + kind);
            cells.push(typeof value === 'bigint' ? Number(BigInt.asIntN(64, value)) : value);
          }
        }
      }
    }
  });
  let sequence = 1;
  const send = (method, ...more) => {
    const message = Buffer.concat([number(1, sequence++), number(2, method), ...more]);
    port.onmessage({ data: new Uint8Array(bytes(1, message)) });
  };
  for (const trace of traces) {
    send(1, bytes(101, fs.readFileSync(trace)));
    send(2);
    for (const query of queries) {
      [columns, cells] = [[], []];
      send(3, bytes(103, bytes(1, Buffer.from(query))));
      const rows = [];
      while (cells.length) rows.push(cells.splice(0, columns.length));
      console.log(JSON.stringify(rows));
    }
    // Forgets the trace.
    send(11, bytes(107, Buffer.alloc(0)));
  }
  process.exit(0);
})().catch(error => {
  console.error(String(error.message).slice(0, 500));
  process.exit(1);
});
