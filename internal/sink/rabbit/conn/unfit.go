// What a broker lacks that the configuration asks for, by what it says first.

package conn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// UnfitError says that a broker answers, and lacks what the configuration asks for. It passes only
// if the address leads to another broker, or this one is changed.
type UnfitError struct{ Text, Fix string }

func (e *UnfitError) Error() string { return e.Text }

// ErrUnfit is in the error of Dial: every address leads to a broker with an UnfitError.
var ErrUnfit = errors.New("the broker lacks what the configuration asks for")

var errNoTLS = &UnfitError{"the port does not speak TLS", "use the broker's TLS port in sink.rabbitmq.url, or an amqp:// URL"}

// explainGreeting returns an UnfitError when the first bytes of a broker show one; else err. over
// is the scheme of the address.
func explainGreeting(err error, greeting []byte, mechanism, over string) error {
	switch {
	case errors.Is(err, amqp.ErrSASL):
		fix := "add " + mechanism + " to auth_mechanisms of the broker, or log in with a certificate: ?auth_mechanism=external in sink.rabbitmq.url, and sink.rabbitmq.tls.cert"
		switch {
		case mechanism == external && over == "amqp": // it is offered with a certificate only
			fix = "write amqps:// in sink.rabbitmq.url, with the broker's TLS port, or leave auth_mechanism out of it"
		case mechanism == external:
			fix = "enable rabbitmq_auth_mechanism_ssl at the broker and add EXTERNAL to its auth_mechanisms, or leave auth_mechanism out of sink.rabbitmq.url"
		}
		return &UnfitError{fmt.Sprintf("mechanism %s is not enabled, the broker has %s", mechanism, offeredMechanisms(greeting)), fix}
	case len(greeting) > 1 && greeting[0] == 21 && greeting[1] == 3: // an alert
		return &UnfitError{"the broker answers with a TLS alert: the port expects TLS", "write amqps:// in sink.rabbitmq.url, or use the broker's port without TLS"}
	case bytes.HasPrefix(greeting, []byte("AMQP")) && len(greeting) >= 8:
		return &UnfitError{
			fmt.Sprintf("the broker does not speak AMQP 0-9-1, but %d.%d.%d", greeting[5], greeting[6], greeting[7]), "use a port of AMQP 0-9-1 in sink.rabbitmq.url, such as RabbitMQ's 5672 or 5671",
		}
	}
	return err
}

// offeredMechanisms reads the mechanisms in the frame connection.start, behind its head, the
// method, the protocol's version and a table.
func offeredMechanisms(frame []byte) string {
	rest, found := frame[min(7+4+2, len(frame)):], ""
	for range 2 {
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			return "others"
		}
		size := binary.BigEndian.Uint32(rest)
		found, rest = string(rest[4:4+size]), rest[4+size:]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(found, "?"), " ", ", ")
}
