// Logical messages (pg_logical_emit_message): those with a configured prefix are the rows of an
// outbox that has no table. Their JSON strings, and rows that cannot be decoded as JSON.

package decode

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Messages says which logical messages are events, and what of them. A message is a JSON object
// that stands for a row: its members are the columns.
type Messages struct {
	Prefix string // "": none are
	// Mapping names the members. Those of id, aggregate, key, type and payload must be there when
	// they are named, and may be null: otherwise a misspelt key would go unnoticed, and its events
	// would have no order.
	Mapping Mapping
}

// member is the names of an event's part, and its value in the current message.
type member struct {
	names    []string
	optional bool // a message may lack it, as it may a part without names

	// JSON as it stands in the message, the first that is not null; nil: it has no member of these
	// names
	value  []byte
	values [][]byte // by names, where there are several, else nil
}

func (c Messages) members(extra []string) []member {
	if c.Prefix == "" {
		return nil
	}
	var list []member
	for part, n := range c.Mapping.partNames() {
		m := member{names: n.Any, optional: part > partPayload}
		if len(n.Any) > 1 {
			m.values = make([][]byte, len(n.Any))
		}
		list = append(list, m)
	}
	for _, name := range extra {
		list = append(list, member{names: []string{name}, optional: true})
	}
	return list
}

// decodeMessage reads a logical message. Only a transactional one is of the open transaction, and
// counts; the server sends another kind at once, outside transactions. leftOut: only the length of
// its content is there.
func (d *Decoder) decodeMessage(f *frame, msg *Message, leftOut bool) error {
	flags := f.byte()
	f.uint64() // its LSN
	prefix := f.string()
	var content []byte
	var size uint32
	if leftOut {
		size = f.uint32()
	} else {
		content = f.bytes()
	}
	if err := f.checkEnd(); err != nil {
		return err
	}
	ours := d.messagePrefix != "" && string(prefix) == d.messagePrefix
	msg.Kind, msg.Reason = Skipped, "message"
	if flags&1 == 0 {
		if ours {
			msg.Reason = NonTransactional
		}
		return nil
	}
	index, err := d.countChange()
	if err != nil {
		return err
	}
	if !ours {
		if slices.Contains(d.droppedPrefixes, string(prefix)) {
			msg.Kind, msg.Name = Foreign, string(prefix)
		}
		return nil
	}
	pos := event.Position{Commit: d.commit, Index: index}
	if leftOut {
		ev := d.resetEvent(pos)
		ev.LeftOut = &event.LeftOut{Bytes: int64(size)}
		clear(d.columns)
		ev.Columns = d.columns
		d.setOrder(ev)
	} else {
		d.fillFromMessage(content, pos)
	}
	msg.Kind, msg.Reason, msg.Event = Row, "", &d.event
	return nil
}

// fillFromMessage fills the event from a message's content. As with a row, whatever is wrong with
// it becomes the event's Fault.
func (d *Decoder) fillFromMessage(content []byte, pos event.Position) {
	ev := d.resetEvent(pos)
	ev.Fault = d.findMembers(content)

	ev.ID = d.scalarText(partID)
	if len(ev.ID) == 0 {
		d.setMessageFault("the id (member %s of the message) is null or empty", partID)
	}
	ev.Aggregate = d.scalarText(partAggregate)
	ev.Key = d.scalarText(partKey)
	ev.Type = d.scalarText(partType)
	ev.Traceparent = d.scalarText(partTraceparent)
	ev.Payload = d.members[partPayload].json() // PayloadKind is JSON, the zero value
	ev.Headers = d.members[partHeaders].json()
	d.setMessageTime()
	for i := range d.columns {
		d.columns[i] = d.memberText(partExtra + i)
	}
	ev.Columns = d.columns

	if ev.Fault != nil {
		ev.Raw = rawMessage(content)
	}
	d.setOrder(ev)
}

var (
	errNotUTF8   = errors.New("the message is not UTF-8; PostgreSQL does not convert messages, so in a database of another encoding emit convert_to(..., 'UTF8')")
	errNotObject = errors.New("the message is not a JSON object")
)

// findMembers looks up the parts of the event among the message's members. Of two members with one
// name the last one counts, as in jsonb. The error is a fault of the whole message, or names the
// first member that it lacks.
func (d *Decoder) findMembers(content []byte) error {
	for i := range d.members {
		d.members[i].dropValues()
	}
	if !utf8.Valid(content) {
		return errNotUTF8
	}
	list, ok := event.MembersOf(content)
	if !ok {
		return errNotObject
	}
	for name, value, more := list.Next(); more; name, value, more = list.Next() {
		for i := range d.members {
			d.members[i].offerValue(name, value)
		}
	}
	var err error
	for i := range d.members {
		m := &d.members[i]
		if m.chooseValue(); m.value == nil && !m.optional && len(m.names) > 0 && err == nil {
			err = fmt.Errorf("the message has no member %s (null is a value)", listNames(m.names))
		}
	}
	return err
}

// dropValues drops references to the message.
func (m *member) dropValues() {
	clear(m.values)
	m.value = nil
}

// offerValue takes a value if its name is one of the member's.
func (m *member) offerValue(name, value []byte) {
	for i, n := range m.names {
		if string(name) == n {
			if m.values == nil {
				m.value = value
			} else {
				m.values[i] = value
			}
			return
		}
	}
}

// chooseValue sets the value of a part with several names: the first that is not null. It is called
// after the last member was offered, because a name may come again, and be null then.
func (m *member) chooseValue() {
	for _, v := range m.values {
		if v != nil && (m.value == nil || string(m.value) == "null") {
			m.value = v
		}
	}
}

// json is the value as it stands in the message; nil when it is null or not there.
func (m *member) json() []byte {
	if string(m.value) == "null" {
		return nil
	}
	return m.value
}

// scalarText is the text of a part that must be a string or a number.
func (d *Decoder) scalarText(part int) []byte {
	v := d.members[part].json()
	if len(v) > 0 && v[0] != '"' && v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		d.setMessageFault("member %s of the message is neither a string nor a number", part)
		return nil
	}
	return d.memberText(part)
}

// memberText is the text of a part: of a string its characters, of any other value its JSON.
func (d *Decoder) memberText(part int) []byte {
	v := d.members[part].json()
	if len(v) == 0 || v[0] != '"' {
		return v
	}
	text, ok := unquoteString(v)
	if !ok {
		d.setMessageFault("member %s of the message has half a surrogate pair or \\ufffd, which stand for no character", part)
		return nil
	}
	return text
}

// setMessageTime sets the event's time from its member, in PostgreSQL's form or in that of RFC
// 3339, which is how to_json writes it.
func (d *Decoder) setMessageTime() {
	text := d.scalarText(partTimestamp)
	if text == nil {
		return
	}
	at, ok := parseTimestamp(text)
	if !ok {
		at, ok = parseRFC3339(text)
	}
	if !ok {
		d.setMessageFault("the timestamp (member %s of the message) is not a date of the years 1 to 9999", partTimestamp)
		return
	}
	d.event.Time = at
}

// setMessageFault keeps the first thing that is wrong with the message. It names the member, never
// the value.
func (d *Decoder) setMessageFault(format string, part int) {
	if m := &d.members[part]; d.event.Fault == nil {
		d.event.Fault = fmt.Errorf(format, listNames(m.names))
	}
}

// unquoteString is the text of a JSON string, which was checked: a piece of it, or a copy where it
// has escapes. ok is false for half a surrogate pair: ids that differ in one only would become the
// same. encoding/json writes U+FFFD for it, so the text may have no more of these than the string,
// and an escape of one is refused as well.
func unquoteString(quoted []byte) (text []byte, ok bool) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1 : len(quoted)-1], true
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	const instead = "\ufffd"
	return slices.Clip([]byte(s)), err == nil && strings.Count(s, instead) == bytes.Count(quoted, []byte(instead))
}

// rawRow writes a row as a JSON object of the texts of its columns. A value that is no text stands
// in hexadecimal under "name:hex"; one that the server did not send as null under "name:unsent";
// and of one that was left out its size under "name:left_out".
func rawRow(names []string, values []value) []byte {
	b := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		v := &values[i]
		if v.kind == LeftOutValue { // of a column that no event is made of
			b = appendMember(b, name+":left_out", v.size())
			continue
		}
		switch {
		case v.kind == 'n':
			b = appendMember(b, name, nil)
		case v.kind == 'u':
			b = appendMember(b, name+":unsent", nil)
		case v.kind == 't' && utf8.Valid(v.data):
			b = appendMember(b, name, string(v.data))
		default:
			b = appendMember(b, name+":hex", hex.EncodeToString(v.data))
		}
	}
	return append(b, '}')
}

// rawMessage is a logical message as it is, or when it is not UTF-8 in hexadecimal.
func rawMessage(content []byte) []byte {
	if utf8.Valid(content) {
		return content
	}
	return append(appendMember([]byte{'{'}, "message:hex", hex.EncodeToString(content)), '}')
}

// appendMember writes a member of an object: a string, a number, or null.
func appendMember(b []byte, name string, value any) []byte {
	out := bytes.NewBuffer(b)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	_ = e.Encode(name) //nolint:errcheck // a string can always be written
	out.Truncate(out.Len() - 1)
	out.WriteByte(':')
	_ = e.Encode(value) //nolint:errcheck // the same, or a number or null
	return out.Bytes()[:out.Len()-1]
}
