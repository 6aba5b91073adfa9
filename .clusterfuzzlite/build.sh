#!/bin/bash -eu
# Builds every fuzz target, with its seeds and its dictionary beside it, as ClusterFuzzLite wants them.
cd "$SRC/memviz"
cargo fuzz build -O
for target in $(cargo fuzz list); do
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
    zip -jqr "$OUT/${target}_seed_corpus.zip" "fuzz/seeds/$target"
    [ ! -f "fuzz/dictionaries/$target.dict" ] || cp "fuzz/dictionaries/$target.dict" "$OUT/$target.dict"
done
