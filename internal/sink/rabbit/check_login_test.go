package rabbit

import (
	"strings"
	"testing"
)

// AMQP logs in with the password as it is: a warning for each address off this machine without TLS.
func TestLoginWithoutTLS(t *testing.T) {
	found := clearLogins([]string{"amqp://localhost/", "amqp://127.0.0.1:5672/", "amqp://[::1]/", "amqps://mq-1.example/"})
	if len(found) != 0 {
		t.Errorf("found %+v", found)
	}
	found = clearLogins([]string{"amqp://localhost/", "amqp://u:mqsecret@mq-1.example/shop", "amqps://mq-2.example/", "amqp://10.0.0.7:5673/"})
	if len(found) != 1 || !found[0].Warn || found[0].OK || !strings.Contains(found[0].Detail, "without TLS to mq-1.example:5672, 10.0.0.7:5673:") ||
		!strings.Contains(found[0].Fix, "amqps://") || strings.Contains(found[0].Detail, "mqsecret") {
		t.Errorf("found %+v", found)
	}
}
