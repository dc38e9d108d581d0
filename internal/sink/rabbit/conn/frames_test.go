package conn

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// kinds of frames
const (
	methodFrame, headerFrame, bodyFrame, heartbeatFrame = 1, 2, 3, 8
	frameEnd                                            = 0xCE
)

// frameOf is a frame as a broker sends it.
func frameOf(kind, channel byte, payload string) string {
	b := binary.BigEndian.AppendUint32([]byte{kind, 0, channel}, uint32(len(payload)))
	return string(append(append(b, payload...), frameEnd))
}

func longText(text string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
}

// FuzzFrames: whatever a broker sends, amqp091 does not panic, and takes no memory for what is only
// announced. It has bounded that since 1.16; versions before allocated a text of 2 GiB at once.
func FuzzFrames(f *testing.F) {
	begins := string([]byte{0, 10, 0, 10, 0, 9}) // connection.start of AMQP 0-9
	var (
		start   = frameOf(methodFrame, 0, begins+longText("\x03cap")+longText("PLAIN")+longText("en_US"))
		tune    = frameOf(methodFrame, 0, "\x00\x0a\x00\x1e\x07\xff\x00\x02\x00\x00\x00\x00")
		opened  = frameOf(methodFrame, 0, "\x00\x0a\x00\x29\x00")
		channel = frameOf(methodFrame, 1, "\x00\x14\x00\x0b"+longText(""))
		deliver = frameOf(methodFrame, 1, "\x00\x3c\x00\x3c\x01c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x02ex\x03key")
		ack     = frameOf(methodFrame, 1, "\x00\x3c\x00\x50\x00\x00\x00\x00\x00\x00\x00\x01\x00")
		content = frameOf(headerFrame, 1, "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x80\x00\x04text")
		large   = frameOf(headerFrame, 1, "\x00\x3c\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x80\x00\x04text")
		text    = frameOf(bodyFrame, 1, "12345")
		claim   = strings.Replace(start, longText("PLAIN"), "\x7f\xff\xff\xffPLAIN", 1)
		login   = start + tune + opened + channel
	)
	for _, one := range []string{start, claim, login + ack, login + deliver + content + text, login + deliver + large + text, login + frameOf(heartbeatFrame, 0, "")} {
		f.Add([]byte(one))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<10 {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if c, err := amqp.Open(sent{bytes.NewReader(in), io.Discard}, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{}}, Locale: "en_US"}); err == nil {
			if ch, err := c.Channel(); err == nil {
				_ = ch.Close()
			}
			_ = c.Close()
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Fatalf("%d bytes are allocated for %d", took, len(in))
		}
	})
}

// sent is a connection on which that was sent, and no more.
type sent struct {
	io.Reader
	io.Writer
}

func (sent) Close() error { return nil }
