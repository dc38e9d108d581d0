// What tells events with the same id apart. docs/consuming.md has the rule for other languages.

package inbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// fingerprint tells events with the same id apart. Its first byte is its version, 2. The other 15
// are from a hash of everything that belongs to the event. Each part is hashed with its length, so
// that the end of one part cannot pass for the beginning of the next.
func fingerprint(m Message) []byte {
	hash := sha256.New()
	add := func(part []byte) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		hash.Write(part)
	}
	payload, headers := contentOf(m)
	for _, part := range []string{m.Aggregate, m.Key, m.Type} {
		add([]byte(part))
	}
	add(payload)
	for _, header := range headers {
		add([]byte(header[0]))
		add([]byte(header[1]))
	}
	return append([]byte{2}, hash.Sum(nil)[:15]...)
}

// relayAttributes are the attributes of a CloudEvent that the relay itself writes. They repeat what
// else the message has, or may differ when the event comes again: a row that is sent again has
// another sequence, and perhaps another time. All others are extensions, which are of the row.
var relayAttributes = []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "traceparent", "partitionkey", "sequence"}

// attributePrefixes are what the headers of attributes begin with, on Kafka and on RabbitMQ.
var attributePrefixes = []string{"ce_", "cloudEvents:"}

// contentOf returns the payload of the event, and the names and values of its headers in the order
// of the names. An extension of a CloudEvent is a header ce_NAME in each form. So the event is the
// same in each form that the relay may send, unless that adds extensions to it.
func contentOf(m Message) (payload []byte, headers [][2]string) {
	payload, attributes := unwrap(m)
	isCloudEvent := attributes != nil
	for _, prefix := range attributePrefixes {
		isCloudEvent = isCloudEvent || m.Headers[prefix+"specversion"] != ""
	}
	add := func(attribute, value string) {
		if !slices.Contains(relayAttributes, attribute) {
			headers = append(headers, [2]string{"ce_" + attribute, value})
		}
	}
	for name, value := range m.Headers {
		switch attribute, found := attributeName(name); {
		case isOfDelivery(name), isCloudEvent && name == "content-type":
		case isCloudEvent && found:
			add(attribute, value)
		default:
			headers = append(headers, [2]string{name, value})
		}
	}
	for attribute, value := range attributes {
		add(attribute, value)
	}
	slices.SortFunc(headers, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return payload, headers
}

// attributeName is the attribute that a header has, in a CloudEvent.
func attributeName(header string) (name string, found bool) {
	for _, prefix := range attributePrefixes {
		if name, found := strings.CutPrefix(header, prefix); found {
			return name, true
		}
	}
	return "", false
}

// unwrap returns payload and attributes of a CloudEvent in structured mode, as the relay writes it:
// its members are strings, and the last one has the payload. What has another form may be the
// payload of a service, and stands as it is, without attributes.
func unwrap(m Message) (payload []byte, attributes map[string]string) {
	members, isWhole := bytes.CutSuffix(m.Payload, []byte("}"))
	if !isWhole || !isContentType(m.ContentType, "application/cloudevents+json") || !utf8.Valid(m.Payload) {
		return m.Payload, nil
	}
	members, data, isData := bytes.Cut(members, []byte(`,"data":`))
	isBase64 := false
	if !isData {
		members, data, isBase64 = bytes.Cut(members, []byte(`,"data_base64":`))
	}
	if json.Unmarshal(append(slices.Clone(members), '}'), &attributes) != nil || attributes["id"] != m.ID {
		return m.Payload, nil
	}
	kind := attributes["datacontenttype"]
	var text string
	switch {
	case !isData && !isBase64: // NULL
		return nil, attributes
	case isData && (isContentType(kind, "application/json") || isContentType(kind, "text/json")):
		return data, attributes
	case !bytes.HasPrefix(data, []byte(`"`)):
	case isBase64 && json.Unmarshal(data, &payload) == nil:
		return payload, attributes
	case isData && json.Unmarshal(data, &text) == nil:
		return []byte(text), attributes
	}
	return m.Payload, nil
}

// isContentType reports whether a content type is the one with this name, whatever its parameters.
func isContentType(text, name string) bool {
	kind, _, _ := strings.Cut(text, ";")
	return strings.EqualFold(strings.TrimSpace(kind), name)
}

// isOfDelivery reports whether a header belongs to a delivery, not to its event. Such a header may
// differ when the event comes again: the relay's headers about the delivery, the span that
// published it, the run of a Debezium connector, and what brokers note of a message's way.
func isOfDelivery(name string) bool {
	return slices.Contains([]string{"cdc_position", "cdc_replay", "traceparent", "tracestate", "x-routed-by", "x-stream-offset"}, name) ||
		slices.ContainsFunc([]string{"__debezium.", "x-opt-", "x-shovelled"}, func(begin string) bool { return strings.HasPrefix(name, begin) })
}
