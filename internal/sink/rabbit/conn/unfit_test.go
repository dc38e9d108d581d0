package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
)

// startFrame is connection.start with these mechanisms.
func startFrame(mechanisms string) string {
	//nolint:dupword // bytes
	payload := "\x00\x0a\x00\x0a\x00\x09" + "\x00\x00\x00\x04\x01at\x01" + "\x00\x00\x00" + string(rune(len(mechanisms))) + mechanisms + "\x00\x00\x00\x05en_US"
	return "\x01\x00\x00\x00\x00\x00" + string(rune(len(payload))) + payload + "\xce"
}

// answering is the address of a port that answers this and closes the connection when the other end
// does.
func answering(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(text))
			go func() {
				_, _ = c.Read(make([]byte, 4096))
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// What a broker lacks is told by what it says first, with what it has and the key to change.
func TestUnfit(t *testing.T) {
	const other = "AMQP\x00\x01\x00\x00"
	for name, c := range map[string]struct{ scheme, query, answer, want, fix string }{
		"TLS, plain port":  {"amqps", "", "AMQP\x00\x00\x09\x01", "the port does not speak TLS", "sink.rabbitmq.url"},
		"plain, TLS port":  {"amqp", "", "\x15\x03\x01\x00\x02\x02\x46", "the port expects TLS", "amqps:// in sink.rabbitmq.url"},
		"another protocol": {"amqp", "", other, "does not speak AMQP 0-9-1, but 1.0.0", "sink.rabbitmq.url"},
		"no PLAIN":         {"amqp", "", startFrame("EXTERNAL AMQPLAIN"), "mechanism PLAIN is not enabled, the broker has EXTERNAL, AMQPLAIN", "auth_mechanisms"},
		"no EXTERNAL":      {"amqp", "?auth_mechanism=external", startFrame("PLAIN"), "mechanism EXTERNAL is not enabled, the broker has PLAIN", "write amqps://"},
	} {
		d := &Dialer{
			URLs:  []string{c.scheme + "://u:s@" + answering(t, c.answer) + "/" + c.query},
			TLS:   func() (*tls.Config, error) { return &tls.Config{}, nil },
			Admit: func(string, string) error { return nil },
		}
		_, err := d.Dial(t.Context(), nil)
		var unfit *UnfitError
		if !errors.Is(err, ErrUnfit) || !errors.As(err, &unfit) || !strings.Contains(err.Error(), c.want) || !strings.Contains(unfit.Fix, c.fix) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		d.URLs = append(d.URLs, "amqp://"+answering(t, "")+"/")
		if _, err := d.Dial(context.Background(), nil); err == nil || errors.Is(err, ErrUnfit) || !strings.Contains(ErrorText(err), c.want) || strings.Contains(ErrorText(err), "\n") {
			t.Errorf("%s, and another address: got %v", name, err)
		}
	}
	// A proxy that has no broker may answer like this.
	d := &Dialer{URLs: []string{"amqps://u:s@" + answering(t, "HTTP/1.0 503 Service Unavailable\r\n\r\n") + "/"}, TLS: func() (*tls.Config, error) { return &tls.Config{}, nil }}
	if _, err := d.Dial(t.Context(), nil); err == nil || errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "may not speak TLS") {
		t.Errorf("a banner: got %v", err)
	}
	frame := startFrame("PLAIN")
	for n := range frame {
		if got := offeredMechanisms([]byte(frame[:n])); got != "PLAIN" && got != "others" {
			t.Errorf("%d bytes: %q", n, got)
		}
	}
}
