package config

import (
	"bytes"
	"strings"
	"testing"
)

// What is printed must be a configuration again, also when the address carries the user: the
// default guest next to it would be refused.
func TestPrintedUserStandsOnce(t *testing.T) {
	c := mustLoad(t, "source: {url: postgres://h/db}\nsink: {rabbitmq: {url: amqp://u:p@h}}\n")
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "guest") {
		t.Errorf("printed a user in addition to the one of the address:\n%s", out.String())
	}
}
