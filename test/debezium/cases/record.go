package cases

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Record is what a consumer sees of one row.
type Record struct {
	Topic     string   `json:"topic,omitempty"`
	Partition int      `json:"partition"` // -1: any
	Key       Bytes    `json:"key"`
	Value     Bytes    `json:"value"`
	Headers   []Header `json:"headers"` // in their order; RabbitMQ's by name
	Time      string   `json:"time,omitempty"`

	// Of RabbitMQ only; Value is the body.
	Exchange     string `json:"exchange,omitempty"`
	RoutingKey   string `json:"routing_key,omitempty"`
	DeliveryMode uint8  `json:"delivery_mode,omitempty"`
	Properties   string `json:"properties,omitempty"` // the names of all others

	Offset int64 `json:"-"`
}

// Header is one header.
type Header struct {
	Name  string `json:"name"`
	Type  string `json:"type,omitempty"` // of RabbitMQ: string, []uint8, nil
	Value Bytes  `json:"value"`
}

// Bytes are bytes as they stand in a file: null, text where it is text, else hexadecimal, and large
// ones by their hash.
type Bytes = json.RawMessage

const large = 4 << 10

// Of writes bytes; nil is null.
func Of(b []byte) Bytes {
	var v any = string(b)
	switch {
	case b == nil:
		v = nil
	case len(b) > large:
		sum := sha256.Sum256(b)
		v = map[string]any{"sha256": hex.EncodeToString(sum[:]), "length": len(b)}
	case !utf8.Valid(b):
		v = map[string]any{"hex": hex.EncodeToString(b)}
	}
	text, err := plainJSON(v)
	if err != nil {
		panic(err) // none of these can fail
	}
	return text
}

// plainJSON leaves <, > and & as they are.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// now stands for a time between the beginning and the end of a run.
const now = "now"

// Timestamp is the time of a record in milliseconds, or that it was the moment.
func Timestamp(at, begin time.Time) string {
	if !at.Before(begin.Add(-time.Minute)) {
		return now
	}
	return fmt.Sprint(at.UnixMilli())
}

// Sort puts records into the order of topics, partitions and offsets.
func Sort(records []Record) {
	slices.SortStableFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
}
