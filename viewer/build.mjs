/**
 * Makes view.html.gz in the folder that is named, which contains NOTICE: the page in one file, the same bytes each time. The engine
 * and a recording are put in later.
 */

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = path.dirname(fileURLToPath(import.meta.url));
/** @type {import('esbuild').BuildOptions} */
const options = {
    bundle: true,
    minify: true,
    write: false,
    target: 'es2022',
    charset: 'utf8',
    legalComments: 'none',
    absWorkingDir: here,
};

// A worker as the text of its script: it is started from memory.
/** @type {import('esbuild').Plugin} */
const workers = {
    name: 'workers',
    setup(builder) {
        builder.onResolve({ filter: /^worker:/ }, ({ path: name, resolveDir }) => ({
            path: path.relative(here, path.resolve(resolveDir, name.slice('worker:'.length))),
            namespace: 'worker',
        }));
        builder.onLoad({ filter: /.*/, namespace: 'worker' }, async ({ path: file }) => {
            const { outputFiles } = await build({
                ...options,
                entryPoints: [path.join(here, file)],
                format: 'iife',
                define: { 'import.meta.url': '""' },
            });
            return { contents: outputFiles?.[0].text ?? '', loader: 'text' };
        });
    },
};

/**
 * What the policy lets through: a script or style of just these bytes.
 * @param {string} text
 */
function hash(text) {
    return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

if (!existsSync(path.join(here, 'engine/pkg/engine.js'))) {
    console.error('viewer: expected the engine in engine/pkg, found none; viewer/build makes it');
    process.exit(1);
}
const [script, style] = await Promise.all(
    ['src/main.ts', 'src/style.css'].map(async (entry) => {
        const { outputFiles } = await build({
            ...options,
            entryPoints: [path.join(here, entry)],
            format: 'esm',
            plugins: [workers],
        });
        // An end tag within would end the element that it is put into.
        return (outputFiles?.[0].text ?? '').trim().replace(/<\/(script|style)/gi, '<\\/$1');
    }),
);
const policy = [
    "default-src 'none'",
    `script-src ${hash(script)} 'wasm-unsafe-eval'`,
    `style-src ${hash(style)}`,
    'worker-src blob:',
    'img-src data: blob:',
    "base-uri 'none'",
    "form-action 'none'",
].join('; ');
const out = path.resolve(process.argv[2]);
const notice = readFileSync(path.join(out, 'NOTICE'), 'utf8').replace(/<\/script/gi, '');
/** @type {Record<string, string>} */
const parts = { CSP: policy, STYLE: style, SCRIPT: script, NOTICE: notice };
const page = readFileSync(path.join(here, 'src/index.html'), 'utf8').replace(/%([A-Z]+)%/g, (_, name) => parts[name]);
writeFileSync(path.join(out, 'view.html.gz'), gzipSync(page, { level: 9 }));
