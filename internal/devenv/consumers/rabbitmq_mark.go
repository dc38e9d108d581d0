// The consumer's own messages in its queue, and what a relay's message carries.

package consumers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

const markType = "cdc-relay-devenv.mark"

var (
	errMarkLost = errors.New("the mark did not come back within 5 s")
	errBlocked  = errors.New("the broker blocks publishers")
)

// marker publishes marks over a connection of its own.
type marker struct {
	mu      sync.Mutex
	conn    *amqp.Connection // nil: not connected
	channel *amqp.Channel
	blocked chan amqp.Blocking
	stopped bool // the broker has said that it reads nothing
}

// send puts a mark at the end of a queue and returns its id. It does not wait for the broker.
func (m *marker) send(ctx context.Context, url, queue string, what checker.Mark) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.connect(url); err != nil {
		return "", fmt.Errorf("send mark: %w", err)
	}
	for more := true; more; {
		select {
		case b := <-m.blocked:
			m.stopped = b.Active
		default:
			more = false
		}
	}
	if m.stopped {
		return "", fmt.Errorf("send mark: %w", errBlocked)
	}
	id := "mark-" + rand.Text()
	err := m.channel.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{
		Type: markType, MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(markText(what)),
	})
	if err != nil {
		return "", fmt.Errorf("send mark: %w", err)
	}
	return id, nil
}

// markText is what a mark carries: its position, and after a space its snapshot.
func markText(m checker.Mark) string {
	if m.Snapshot == nil {
		return m.Flush.String()
	}
	return m.Flush.String() + " " + m.Snapshot.String()
}

// readMark reads what text wrote.
func readMark(text string) (flush pglogrepl.LSN, snapshot *checker.Snapshot, err error) {
	position, seen, ok := strings.Cut(text, " ")
	if ok {
		if snapshot, err = checker.ParseSnapshot(seen); err != nil {
			return 0, nil, err
		}
	}
	flush, err = pglogrepl.ParseLSN(position)
	return flush, snapshot, err
}

func (m *marker) connect(url string) (err error) {
	if m.conn != nil && !m.conn.IsClosed() && !m.channel.IsClosed() {
		return nil
	}
	m.disconnect()
	if m.conn, err = dialAMQP(url); err != nil {
		m.conn = nil
		return err
	}
	m.stopped = false
	m.blocked = m.conn.NotifyBlocked(make(chan amqp.Blocking, 100))
	if m.channel, err = m.conn.Channel(); err != nil {
		m.disconnect()
	}
	return err
}

func (m *marker) disconnect() {
	if m.conn != nil {
		_ = m.conn.CloseDeadline(time.Now().Add(2 * time.Second)) // it may have ended already
	}
	m.conn = nil
}

func (m *marker) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disconnect()
}

func header(d *amqp.Delivery, name string) string {
	text, _ := d.Headers[name].(string)
	return text
}

// plainText is what a header of Debezium Server stands for, which is JSON, with its schema or
// without: {"schema":…,"payload":"x"} and "x" are x, and so is x.
func plainText(header string) string {
	var wrapped struct{ Payload json.RawMessage }
	text := []byte(header)
	if strings.HasPrefix(header, `{"schema":`) && json.Unmarshal(text, &wrapped) == nil {
		text = wrapped.Payload
	}
	var plain string
	if bytes.HasPrefix(text, []byte(`"`)) && json.Unmarshal(text, &plain) == nil {
		return plain
	}
	return string(text)
}

// seqOf finds the number that a Workload wrote into the payload.
func seqOf(body []byte) int64 {
	_, rest, ok := bytes.Cut(body, []byte(`"seq":`))
	if !ok {
		return 0
	}
	digits := strings.TrimLeft(string(rest[:min(len(rest), 24)]), " ")
	if end := strings.IndexAny(digits, ",}"); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func dialAMQP(url string) (*amqp.Connection, error) {
	return amqp.DialConfig(url, amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
}
