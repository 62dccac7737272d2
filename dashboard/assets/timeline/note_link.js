/* Marks with notes as the part of an address behind #, where they are nobody's but the reader's: no server is sent it.
   notes=TIME~RANK~NOTE;... with the time in us of the run. Whoever wrote the link: it is numbers and plain text. */
const MOST = 20; // marks of a link
const NOTE_CHARS = 120;
const LINK_CHARS = 8000; // of all marks: longer addresses are cut by mail and chat programs
const PART = /(?:^#|\/)notes=([^/]*)$/;
const ONE = /^(-?\d{1,15}(?:\.\d{1,3})?)~(\d{0,9})~(.*)$/;

/* One line of visible characters: no controls, nor marks that turn the direction of writing. */
const plain = (text) => Array.from(text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ")).slice(0, NOTE_CHARS).join("");

const escaped = (text) => encodeURIComponent(plain(text)).replaceAll("~", "%7E");

function decoded(part) {
  const found = ONE.exec(part);
  if (!found) return [];
  try {
    const text = plain(decodeURIComponent(found[3]));
    return [{ at: Number(found[1]) * 1e3, rank: found[2] === "" ? null : Number(found[2]), text }];
  } catch {
    return []; // half a character
  }
}

const encode = (notes) =>
  notes.map((n) => `${(n.at / 1e3).toFixed(3)}~${n.rank === null ? "" : n.rank}~${escaped(n.text)}`).join(";");

ddprof.noteLink = {
  chars: NOTE_CHARS,

  fits: (notes) => notes.length <= MOST && encode(notes).length <= LINK_CHARS,

  /* The notes of an address, null where it names none. */
  read(hash) {
    const found = PART.exec(hash);
    if (!found || found[1].length > LINK_CHARS) return null;
    return found[1].split(";").slice(0, MOST).flatMap(decoded);
  },

  /* The part behind # with other notes; what else it names, the page of a file, stays. */
  write(hash, notes, isFile) {
    const rest = hash.replace(PART, "");
    if (!notes.length) return rest === "#" ? "" : rest;
    if (!isFile) return "#notes=" + encode(notes);
    const [page, detail] = rest.slice(1).split("/");
    return `#${page || "timeline"}/${detail || ""}/notes=${encode(notes)}`;
  },
};
