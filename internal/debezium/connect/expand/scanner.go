// The parser's lowest level: white space, words and strings as Jackson reads them.

package expand

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// nodeParser reads a document from its beginning.
type nodeParser struct {
	text    []byte
	at      int
	members int
	failed  bool
}

// peek is the next byte after white space, 0 at the end or after a fault.
func (p *nodeParser) peek() byte {
	for p.at < len(p.text) && !p.failed {
		switch c := p.text[p.at]; c {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return c
		}
	}
	return 0
}

func (p *nodeParser) word(w string) bool {
	if len(p.text)-p.at < len(w) || string(p.text[p.at:p.at+len(w)]) != w {
		return false
	}
	p.at += len(w)
	return true
}

// string reads a string from its quote on. A lone surrogate becomes the three bytes that UTF-8
// would have for it.
func (p *nodeParser) string() []byte {
	p.at++
	start := p.at
	var out []byte
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			s := p.text[start:p.at:p.at]
			p.at++
			if out != nil {
				return append(out, s...)
			}
			return s
		case c < ' ':
			p.failed = true
			return nil
		case c == '\\':
			out = append(out, p.text[start:p.at]...)
			p.at++
			out = p.escape(out)
			start = p.at
		default:
			p.at++
		}
		if p.failed {
			return nil
		}
	}
	p.failed = true
	return nil
}

func (p *nodeParser) escape(out []byte) []byte {
	if p.at == len(p.text) {
		p.failed = true
		return out
	}
	c := p.text[p.at]
	p.at++
	switch c {
	case '"', '\\', '/':
		return append(out, c)
	case 'b':
		return append(out, '\b')
	case 'f':
		return append(out, '\f')
	case 'n':
		return append(out, '\n')
	case 'r':
		return append(out, '\r')
	case 't':
		return append(out, '\t')
	case 'u':
		return p.unicode(out)
	}
	p.failed = true
	return out
}

func (p *nodeParser) unicode(out []byte) []byte {
	r := rune(p.unit())
	if utf16.IsSurrogate(r) {
		before := p.at
		if p.word(`\u`) {
			if both := utf16.DecodeRune(r, rune(p.unit())); both != utf8.RuneError {
				return utf8.AppendRune(out, both)
			}
			p.at = before
		}
		return append(out, 0xED, 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(out, r)
}

// unit reads the four hexadecimal digits of an escape.
func (p *nodeParser) unit() uint16 {
	if len(p.text)-p.at < 4 {
		p.failed = true
		return 0
	}
	n, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 16)
	if err != nil {
		p.failed = true
	}
	p.at += 4
	return uint16(n)
}
