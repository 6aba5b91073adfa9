#!/usr/bin/env node
/**
 * Firefox as the tests start it: between both stands what answers for commands of WebDriver BiDi that the installed release lacks,
 * and that no test depends on.
 */

import { spawn } from 'node:child_process';
import { WebSocket, WebSocketServer } from 'ws';

/** Commands that releases up to 153 do not know. Tests that need them ask for Chromium. */
const MISSING = new Set(['emulation.setMediaFeaturesOverride']);
const LARGEST_MESSAGE = 1 << 30;

const browser = spawn(process.env.FIREFOX ?? '/usr/bin/firefox-esr', process.argv.slice(2), {
    stdio: ['inherit', 'inherit', 'pipe'],
});
for (const signal of /** @type {const} */ (['SIGTERM', 'SIGINT', 'SIGHUP'])) process.on(signal, () => browser.kill(signal));
browser.on('exit', (code) => process.exit(code ?? 1));

let said = '';
browser.stderr.on('data', (data) => {
    said += data;
    for (let end = said.indexOf('\n'); end >= 0; end = said.indexOf('\n')) {
        hear(said.slice(0, end));
        said = said.slice(end + 1);
    }
});

/**
 * Tells who started this where to connect, which is here.
 * @param {string} line
 */
function hear(line) {
    const [, words, address] = /^(WebDriver BiDi listening on) (ws:\/\/[\w.:]+)/.exec(line) ?? [];
    if (address === undefined) {
        process.stderr.write(`${line}\n`);
        return;
    }
    const server = new WebSocketServer({ host: '127.0.0.1', port: 0, maxPayload: LARGEST_MESSAGE }, () => {
        const here = /** @type {import('node:net').AddressInfo} */ (server.address());
        process.stderr.write(`${words} ws://127.0.0.1:${here.port}\n`);
    });
    server.on('connection', (client, { url }) => between(client, new WebSocket(address + url, { maxPayload: LARGEST_MESSAGE })));
}

/**
 * @param {WebSocket} client
 * @param {WebSocket} firefox
 */
function between(client, firefox) {
    /** @type {string[]} */
    const waiting = [];
    firefox.on('open', () => waiting.splice(0).forEach((message) => firefox.send(message)));
    firefox.on('message', (message) => client.send(message.toString()));
    firefox.on('close', () => client.close());
    client.on('close', () => firefox.close());
    client.on('message', (data) => {
        const message = data.toString();
        const { id, method } = JSON.parse(message);
        if (MISSING.has(method)) client.send(JSON.stringify({ type: 'success', id, result: {} }));
        else if (firefox.readyState === WebSocket.OPEN) firefox.send(message);
        else waiting.push(message);
    });
}
