// The numbers in a file: of NumPy, of text, or the pixels of a picture.

/** Returns as many numbers as a dense field takes; a picture is drawn on a canvas, too. */
export async function numbersIn(file, field, canvas) {
  if (canvas) canvas.hidden = true;
  if (canvas && file.type.startsWith("image/")) return pixelsIn(file, field, canvas);
  const bytes = new Uint8Array(await file.arrayBuffer());
  const numbers = file.name.endsWith(".npy") ? arrayIn(bytes, file.name) : textIn(bytes);
  if (numbers.some(each => !Number.isFinite(each))) throw Error(`${file.name} must hold finite numbers alone.`);
  if (numbers.length !== field.width) {
    const [holds, takes] = [numbers.length, field.width].map(each => each.toLocaleString("en"));
    throw Error(`${file.name} holds ${holds} numbers; ${field.name} takes ${takes}.`);
  }
  return numbers;
}

function textIn(bytes) {
  return new TextDecoder().decode(bytes).split(/[\s,;[\]]+/).filter(text => text).map(Number);
}

/** Reads the format that numpy.save writes, of versions 1 to 3. */
function arrayIn(bytes, name) {
  const read = {
    "|u1": [1, "getUint8"], "|i1": [1, "getInt8"], "<i2": [2, "getInt16"], "<u2": [2, "getUint16"], "<i4": [4, "getInt32"],
    "<u4": [4, "getUint32"], "<f4": [4, "getFloat32"], "<f8": [8, "getFloat64"],
  };
  const view = new DataView(bytes.buffer);
  const isOld = bytes[6] === 1;
  const begin = isOld ? 10 : 12;
  const start = bytes.length < begin ? NaN : begin + (isOld ? view.getUint16(8, true) : view.getUint32(8, true));
  const header = new TextDecoder("latin1").decode(bytes.subarray(begin, start));
  const [size, get] = read[/'descr': '([^']*)'/.exec(header)?.[1]] ?? [];
  const isRows = header.includes("'fortran_order': False") || /'shape': \(\d*,?\)/.test(header);
  if (bytes[0] !== 0x93 || !get || !isRows || (bytes.length - start) % size) {
    throw Error(`${name} must be an array of NumPy in C order, of floats or whole numbers of at most 32 bits.`);
  }
  return Array.from({ length: (bytes.length - start) / size }, (_, place) => view[get](start + place * size, true));
}

/** Scales a picture to the field's axes, and its brightness to the numbers of the data. */
async function pixelsIn(file, { shape: [channels, height, width], lowest, highest }, canvas) {
  const picture = await createImageBitmap(file).catch(() => { throw Error(`${file.name} is no picture that this browser reads.`); });
  Object.assign(canvas, { width, height, hidden: false });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const places = width * height;
  const bright = place => 0.299 * data[4 * place] + 0.587 * data[4 * place + 1] + 0.114 * data[4 * place + 2];
  const level = (channel, place) => (channels === 1 ? bright(place) : data[4 * place + channel]);
  return Array.from({ length: channels * places }, (_, at) =>
    Math.fround(lowest + ((highest - lowest) * level(Math.floor(at / places), at % places)) / 255));
}
