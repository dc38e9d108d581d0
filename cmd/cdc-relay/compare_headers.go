package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
)

// rabbitHeaders are the headers of an AMQP message by name: a table has no order. Each carries its type, which consumers see.
func rabbitHeaders(table amqp.Table) []compare.Header {
	headers := make([]compare.Header, 0, len(table))
	for name, value := range table {
		h := compare.Header{Name: name}
		switch v := value.(type) {
		case nil:
			h.Kind = "null"
		case string:
			h.Kind, h.Value = "text", []byte(v)
		case []byte:
			h.Kind, h.Value = "bytes", append([]byte{}, v...)
		default:
			h.Kind = strings.TrimPrefix(fmt.Sprintf("%T", v), "amqp091.")
			text, err := json.Marshal(v) // keys sorted
			if err != nil {
				text = fmt.Append(nil, v)
			}
			h.Value = text
		}
		headers = append(headers, h)
	}
	slices.SortFunc(headers, func(a, b compare.Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}
