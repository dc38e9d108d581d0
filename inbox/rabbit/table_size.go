// How many bytes a message's headers take on the wire. The broker ends a connection that sends more
// than fits a frame.

package rabbit

import amqp "github.com/rabbitmq/amqp091-go"

// propertiesSize is more than all other properties of a message take: each is a short text or a
// number.
const propertiesSize = 10 * (maxShortString + 1)

func tableSize(t amqp.Table) int {
	size := 4
	for name, value := range t {
		size += 1 + len(name) + valueSize(value)
	}
	return size
}

func valueSize(value any) int {
	const kind = 1
	switch v := value.(type) {
	case string:
		return kind + 4 + len(v)
	case []byte:
		return kind + 4 + len(v)
	case amqp.Table:
		return kind + tableSize(v)
	case []any:
		size := kind + 4
		for _, element := range v {
			size += valueSize(element)
		}
		return size
	}
	return kind + 8
}
