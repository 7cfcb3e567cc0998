// One run's schedule: gradients by worker, versions by shard.

const APPLIED = 0, PARTLY = 1, DROPPED = 2, MERGED = 3, UNFINISHED = 4, INTERRUPTED = 5;

class Lanes {
  constructor(data) {
    Object.assign(this, {
      workers: data.workers,
      allWorkers: data.allWorkers,
      shards: data.shards,
      gradients: data.gradients,
      end: data.end,
      whole: data.whole,
      reasons: data.reasons,
    });
    const worker = readInts(data.worker);
    this.count = worker.length;
    const order = this.sortByWorker(worker);
    const sorted = (values) => values.map((_, i) => values[order[i]]);
    const steps = readInts(data.step);
    this.step = sorted(steps).map((extra, i) => extra + i - this.first[this.worker[i]]);
    const taken = data.taken; // local steps, of each row or of all
    this.taken = typeof taken === "number" ? new Int32Array(this.count).fill(taken) : sorted(readInts(taken));
    this.start = sorted(readTimes(data.start));
    const length = sorted(readTimes(data.length));
    this.stop = this.start.map((from, i) => from + length[i]);
    this.outcome = sorted(readInts(data.outcome));
    this.read = data.read.map((shard) => sorted(readInts(shard)));
    this.delay = data.delay.map((shard) => sorted(readInts(shard)));
    this.applied = data.applied.map((shard) => sorted(readInts(shard)));
    this.versions = data.versions.map(readTimes);
    this.readLateness();
    this.readDrops(data.drops, order);
    this.absences = Array.from({ length: this.workers }, () => []);
    for (const [who, from, to] of data.absences) this.absences[who].push([from, to]);
  }

  // A worker's gradients are first[worker] to first[worker + 1], in the order of their starts.
  sortByWorker(worker) {
    this.first = new Int32Array(this.workers + 1);
    for (const who of worker) this.first[who + 1]++;
    for (let w = 0; w < this.workers; w++) this.first[w + 1] += this.first[w];
    const next = this.first.slice();
    const order = new Int32Array(worker.length);
    worker.forEach((who, row) => (order[next[who]++] = row));
    this.worker = order.map((row) => worker[row]);
    return order;
  }

  // The largest delay with which a shard applied it; −1 where none did.
  readLateness() {
    this.late = new Int32Array(this.count).fill(-1);
    this.latest = 0;
    for (let i = 0; i < this.count; i++) {
      for (let s = 0; s < this.shards; s++) {
        if (this.applied[s][i]) this.late[i] = Math.max(this.late[i], this.delay[s][i]);
      }
      this.latest = Math.max(this.latest, this.late[i]);
    }
  }

  readDrops(data, order) {
    const place = new Int32Array(this.count);
    order.forEach((row, i) => (place[row] = i));
    const [row, shard, reason] = [data.row, data.shard, data.reason].map(readInts);
    const time = readTimes(data.time);
    this.drops = new Map();
    row.forEach((r, i) => {
      const key = place[r] * this.shards + shard[i];
      this.drops.set(key, { time: time[i], reason: this.reasons[reason[i]] });
    });
  }

  // The gradient that a worker computed or had computed last then; −1 before its first.
  lastBegun(worker, time) {
    const found = countUpTo(this.start, time, this.first[worker], this.first[worker + 1]) - 1;
    return found < this.first[worker] ? -1 : found;
  }

  // The gradient that a worker was computing then, or −1.
  at(worker, time) {
    const found = this.lastBegun(worker, time);
    return found >= 0 && time <= this.stop[found] ? found : -1;
  }

  version(shard, time) {
    return countUpTo(this.versions[shard], time);
  }

  // The version of a shard that a worker held then, and how many updates behind it was.
  held(worker, time, shard = 0) {
    const found = this.lastBegun(worker, time);
    const version = found < 0 ? 0 : this.read[shard][found];
    return { version, behind: this.version(shard, time) - version };
  }

  isAway(worker, time) {
    const here = (to) => time < to || to >= this.end; // who is away at the end is away then too
    return this.absences[worker].some(([from, to]) => from <= time && here(to));
  }

  // When a shard made the version that a gradient read.
  pulledFrom(i, shard) {
    const read = this.read[shard][i];
    return read ? this.versions[shard][read - 1] : 0;
  }

  // What became of a gradient at a shard: null where it never got there.
  push(i, shard) {
    const late = this.delay[shard][i];
    if (late < 0) return null;
    const version = this.read[shard][i] + late;
    if (this.applied[shard][i]) return { version, late, time: this.versions[shard][version] };
    const drop = this.drops.get(i * this.shards + shard);
    return drop ? { version, late, ...drop } : null;
  }

  // In words, a line per shard.
  story(i) {
    const steps = this.taken[i] > 1 ? ` of ${this.taken[i]} local steps` : "";
    const who = `worker ${this.worker[i]}, ${steps ? "row" : "step"} ${this.step[i]}${steps}`;
    if (this.shards === 1) return [`${who}: ${this.fate(i, 0)}`];
    const fates = this.read.map((_, shard) => `shard ${shard}: ${this.fate(i, shard)}`);
    return [who, ...fates.slice(0, 8)];
  }

  fate(i, shard) {
    const pulled = `pulled version ${this.read[shard][i]}`;
    const push = this.push(i, shard);
    if (!push) return `${pulled}, not pushed by the end`;
    if (push.reason === "merged") return `${pulled}, merged into its next push`;
    if (push.reason === "interrupted") return `${pulled}, interrupted at version ${push.version}`;
    const said = `${pulled}, pushed at version ${push.version}, ${push.late} late`;
    return push.reason === undefined ? said : `${said}, dropped (${push.reason})`;
  }
}
