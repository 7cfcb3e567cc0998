// Reads what packing.py wrote.

const ARRAYS = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
};

function readNumbers(packed, Kind) {
  if ("all" in packed) return new Kind(packed.length).fill(packed.all);
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const out = Kind.from(new ARRAYS[packed.type](bytes.buffer));
  if (packed.delta) for (let i = 1; i < out.length; i++) out[i] += out[i - 1];
  return out;
}

const readInts = (packed) => readNumbers(packed, Int32Array);

function readTimes(packed) {
  const out = readNumbers(packed.ticks, Float64Array);
  for (let i = 0; i < out.length; i++) out[i] *= packed.unit;
  return out;
}

// How many of the sorted values are not above this one.
function countUpTo(values, value, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
