# The daily commands; `just` lists them.

_:
    @just --list

# Whether it compiles, everywhere
check:
    cargo check --all-targets

# All tests, or a group of them: just test golden
test *GROUP:
    cargo test {{ if GROUP == "" { "" } else { "--test " + GROUP } }}

# Take new answers over, golden files and console blocks; look at the difference before committing it
bless:
    MEMVIZ_BLESS=1 cargo test --test golden --test docs

# The Python package: format, lints, types, the wheel, its tests
python:
    python/check

# Real PyTorch without a GPU for the tests of the Python package, a few GB: just torch-env 2.11 2.1
torch-env *RELEASES:
    python/tools/torch_env.sh {{ RELEASES }}

# Format and lints, as they have to be
lint:
    cargo fmt --all
    cargo clippy --all-targets -- -D warnings

# All that must hold before a change lands
ci:
    .ci/run

# The binary that is shipped
dist:
    cargo build --profile dist

# Speed against CPython, beside the FILEs given
bench *FILES:
    benches/compare.sh {{ FILES }}

# Feed a target random input for some seconds; needs nightly and cargo-fuzz
fuzz TARGET="snapshot_mutation" SECONDS="180":
    mkdir -p fuzz/corpus/{{ TARGET }}
    cargo +nightly fuzz run {{ TARGET }} fuzz/corpus/{{ TARGET }} fuzz/seeds/{{ TARGET }} -- -max_total_time={{ SECONDS }} -rss_limit_mb=2048

# Record a fixture on a machine with a GPU and PyTorch: just record oom ring
record *CASES:
    python3 fixtures/record.py --out recorded {{ CASES }}

# The book, in a browser; needs mdbook
book:
    mdbook serve --open docs

# Documentation of the library
doc:
    cargo doc --no-deps --open
