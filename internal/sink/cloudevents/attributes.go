// What the values of attributes may be, by CloudEvents 1.0.2 and the RFCs that it names.

package cloudevents

import (
	"bytes"
	"errors"
	"mime"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// isBlank reports whether a value is NULL, or nothing but white space: SDKs take that for missing.
func isBlank(value []byte) bool { return len(bytes.TrimSpace(value)) == 0 }

// isText reports whether a value may be an attribute of type String: it has neither control
// characters nor noncharacters of Unicode.
func isText(value []byte) bool {
	for i := 0; i < len(value); {
		if c := value[i]; c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(value[i:])
		if size == 1 || r < 0xa0 || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe {
			return false
		}
		i += size
	}
	return true
}

// The faults of an event's own. None has a value of the row.

func textFault(attribute string) *sink.Fault {
	return sink.PermanentFault(sink.Invalid, "cloudevents "+attribute+" has a control character or a noncharacter of Unicode, which no attribute may have")
}

func blankFault(attribute string) *sink.Fault {
	return sink.PermanentFault(sink.Invalid, "cloudevents "+attribute+" is empty, and every event must have one")
}

// checkURI says why a text is no URI reference, or no absolute URI.
func checkURI(text string, absolute bool) error {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			return errors.New("has a character that a URI must write as %XX")
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URI (RFC 3986)") // without the reason, which quotes it
	case absolute && !u.IsAbs():
		return errors.New("is no absolute URI, such as https://example.com/schema")
	}
	return nil
}

// checkContentType says why a text cannot be the content type of an event's data.
func checkContentType(text string, structured bool) error {
	if len(text) >= len(marker) && strings.EqualFold(text[:len(marker)], marker) && !structured {
		return errors.New("begins with " + marker + ", by which consumers know messages in structured mode")
	}
	if name, parameters, found := strings.Cut(text, "/"); found && isToken(name) && isToken(parameters) {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(text); err != nil || !strings.Contains(kind, "/") {
		return errors.New("is no content type, such as application/json (RFC 2046)")
	}
	return nil
}

// marker is what content types of whole CloudEvents begin with.
const marker = "application/cloudevents"

// isToken reports whether a text is a token of RFC 2045.
func isToken(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?=`, c) >= 0 {
			return false
		}
	}
	return text != ""
}

// isJSON reports whether data of a content type is JSON: plain, as application/json and text/json
// are, or by the end of its name, as application/vnd.x+json is.
func isJSON(contentType string) (plain, other bool) {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.TrimSpace(kind)
	plain = strings.EqualFold(kind, "application/json") || strings.EqualFold(kind, "text/json")
	end := kind[max(0, len(kind)-len("+json")):]
	return plain, !plain && (strings.EqualFold(end, "+json") || strings.EqualFold(end, "/json"))
}
