import assert from 'node:assert/strict';
import test from 'node:test';
import { sorted } from '../../src/files.ts';
import { addSources, lineOf } from '../../src/sources.ts';

const file = (path: string, text = '') => ({ path, file: new File([text], path.split('/').at(-1)!) });
const frame = (path: string) => ({ label: '', path, own: true });

test('a frame gets the line of the file whose path has the longest common end', async () => {
    addSources([
        file('project/train.py', 'import torch\n    loss.backward()  \n'),
        file('project/models/block.py', 'a\nb'),
        file('project/other/block.py', 'c\nd'),
    ]);
    assert.equal(await lineOf(frame('/home/user/project/train.py:2')), 'loss.backward()');
    assert.equal(await lineOf(frame('/home/user/models/block.py:2')), 'b');
    assert.equal(await lineOf(frame('C:\\work\\other\\block.py:1')), 'c');
    assert.equal(await lineOf(frame('/elsewhere/block.py:1')), null, 'two files may be meant');
    assert.equal(await lineOf(frame('/home/user/project/train.py:99')), null);
    assert.equal(await lineOf(frame('/usr/lib/python3/site-packages/torch/nn/functional.py:1')), null);
});

test('the files of a folder are recordings with their samples, sorted by name, and sources', () => {
    const files = ['run/rank10.pickle.gz', 'run/rank2.pickle.gz', 'run/rank2.device.json', 'run/train.py', 'run/notes.txt'];
    const { recordings, sources } = sorted({ files: files.map((path) => file(path)), isFolder: true });
    assert.deepEqual(recordings.map(({ path }) => path), ['run/rank2.pickle.gz', 'run/rank10.pickle.gz']);
    assert.deepEqual(recordings.map(({ samples }) => samples?.name ?? null), ['rank2.device.json', null]);
    assert.deepEqual(sources.map(({ path }) => path), ['run/train.py']);
    // A file that is dropped alone is a recording, whatever its name.
    assert.equal(sorted({ files: [file('memory')], isFolder: false }).recordings.length, 1);
});
