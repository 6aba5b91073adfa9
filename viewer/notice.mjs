/**
 * Writes NOTICE in the folder that is named: the libraries that the engine is made of, and on what terms. Their texts
 * go where the engine goes, so the page shows them.
 */

import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const target = 'wasm32-unknown-unknown';
const manifest = path.join(here, 'engine/Cargo.toml');
const metadata = JSON.parse(
    execFileSync(
        'cargo',
        ['metadata', '--format-version', '1', '--locked', '--filter-platform', target, '--manifest-path', manifest],
        { encoding: 'utf8', maxBuffer: 1 << 28 },
    ),
);
const packages = new Map(metadata.packages.map((each) => [each.id, each]));
const nodes = new Map(metadata.resolve.nodes.map((each) => [each.id, each]));

/** What runs while the engine is built is no part of it. */
const isPart = ({ dep_kinds: kinds, pkg }) =>
    kinds.some(({ kind }) => kind === null) &&
    !packages.get(pkg).targets.some(({ kind }) => kind.includes('proc-macro'));

const parts = new Set();
const visit = (id) => {
    if (parts.has(id)) return;
    parts.add(id);
    nodes.get(id).deps.filter(isPart).forEach(({ pkg }) => visit(pkg));
};
visit(metadata.resolve.root);

/** The shorter of the texts that a library may be used under. */
function terms({ name, manifest_path: file }) {
    const folder = path.dirname(file);
    const texts = readdirSync(folder).filter((each) => /^(licen[cs]e|copying|unlicense)/i.test(each));
    const [best] = ['mit', 'zlib', 'bsd', ''].flatMap((kind) =>
        texts.filter((each) => each.toLowerCase().includes(kind)).sort(),
    );
    if (best === undefined) throw new Error(`${name}: expected a text of its terms, found none`);
    return readFileSync(path.join(folder, best), 'utf8').replace(/\r/g, '').trim();
}

const libraries = [...parts].map((id) => packages.get(id)).filter(({ source }) => source !== null);
const byText = new Map();
for (const library of libraries.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))) {
    const text = terms(library);
    byText.set(text, [...(byText.get(text) ?? []), `${library.name} ${library.version} (${library.license})`]);
}
const rule = '-'.repeat(80);
const sections = [...byText].map(([text, names]) => `${rule}\n${names.join('\n')}\n\n${text}\n`);
const head =
    'The page of memviz view is made with these libraries, which may be used on the terms below, and with the standard library of\n' +
    'Rust (MIT OR Apache-2.0), copyright The Rust Project Developers.\n';
const out = path.resolve(process.argv[2]);
mkdirSync(out, { recursive: true });
writeFileSync(path.join(out, 'NOTICE'), [head, ...sections].join('\n'));
