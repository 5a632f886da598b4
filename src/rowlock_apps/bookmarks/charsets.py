"""The codec for the name of a charset: only charsets that browsers know.

Python has codecs that don't encode text, that need many seconds for a page (punycode) or that change its content
(unicode_escape, utf-7). So a name is never looked up among all of Python's codecs.
"""

from __future__ import annotations

import re

# By their labels in the WHATWG's Encoding Standard, without - and _; where browsers read a larger set than the label
# names (latin1 is windows-1252), so do we.
_LABELS = {
    "utf-8": "utf8 unicode11utf8 unicode20utf8 xunicode20utf8",
    "utf-16-le": "utf16 utf16le unicode unicodefeff csunicode ucs2 iso10646ucs2",
    "utf-16-be": "utf16be unicodefffe",
    "cp866": "866 cp866 ibm866 csibm866",
    "cp874": "windows874 cp874 dos874 tis620 iso885911",
    "cp1250": "windows1250 cp1250 xcp1250",
    "cp1251": "windows1251 cp1251 xcp1251",
    "cp1252": "windows1252 cp1252 xcp1252 ascii usascii ansix341968 iso88591 isoir100 latin1 l1 cp819 csisolatin1",
    "cp1253": "windows1253 cp1253 xcp1253",
    "cp1254": "windows1254 cp1254 xcp1254 iso88599 isoir148 latin5 l5 csisolatin5",
    "cp1255": "windows1255 cp1255 xcp1255",
    "cp1256": "windows1256 cp1256 xcp1256",
    "cp1257": "windows1257 cp1257 xcp1257",
    "cp1258": "windows1258 cp1258 xcp1258",
    "iso8859-2": "iso88592 isoir101 latin2 l2 csisolatin2",
    "iso8859-3": "iso88593 isoir109 latin3 l3 csisolatin3",
    "iso8859-4": "iso88594 isoir110 latin4 l4 csisolatin4",
    "iso8859-5": "iso88595 isoir144 cyrillic csisolatincyrillic",
    "iso8859-6": "iso88596 iso88596e iso88596i isoir127 arabic csisolatinarabic asmo708 ecma114",
    "iso8859-7": "iso88597 isoir126 greek greek8 suneugreek csisolatingreek elot928 ecma118",
    "iso8859-8": "iso88598 iso88598e iso88598i isoir138 hebrew visual logical csisolatinhebrew",
    "iso8859-10": "iso885910 isoir157 latin6 l6 csisolatin6",
    "iso8859-13": "iso885913",
    "iso8859-14": "iso885914",
    "iso8859-15": "iso885915 l9 csisolatin9",
    "iso8859-16": "iso885916",
    "koi8-r": "koi8r koi8 koi cskoi8r",
    "koi8-u": "koi8u koi8ru",
    "mac-roman": "macintosh mac xmacroman csmacintosh",
    "mac-cyrillic": "xmaccyrillic xmacukrainian",
    "gb18030": "gb18030 gbk xgbk gb2312 gb231280 csgb2312 csiso58gb231280 isoir58 chinese",
    "big5hkscs": "big5 big5hkscs cnbig5 xxbig5 csbig5",
    "euc_jp": "eucjp xeucjp cseucpkdfmtjapanese",
    "iso2022_jp": "iso2022jp csiso2022jp",
    "cp932": "shiftjis sjis xsjis mskanji ms932 windows31j csshiftjis",
    "cp949": "euckr cseuckr ksc5601 ksc56011987 ksc56011989 csksc56011987 isoir149 korean windows949 cp949",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}


def codec_of(charset: str) -> str | None:
    """The codec for a charset's name; None if browsers do not know it."""
    return _CODECS.get(re.sub(r"[\s_:\-]", "", charset[:40]).lower())
