package kafkaclient

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
)

// TestBearer: what a client with a token says, and what it makes of each answer.
func TestBearer(t *testing.T) {
	const want = "n,,\x01auth=Bearer a.secret.b\x01identityPoolId=pool-1\x01logicalCluster=lkc-1\x01\x01"
	for name, c := range map[string]struct {
		token   string
		answer  *saslauthenticate.Response // nil: the client sends nothing
		refused bool
		want    string // of the error; "": none
	}{
		"welcome":       {"a.secret.b", &saslauthenticate.Response{}, false, ""},
		"refused":       {"a.secret.b", &saslauthenticate.Response{AuthBytes: []byte(`{"status":"invalid_token"}`)}, true, "invalid_token"},
		"refused at":    {"a.secret.b", &saslauthenticate.Response{ErrorCode: 58, ErrorMessage: "Access denied"}, true, "Access denied"},
		"another fault": {"a.secret.b", &saslauthenticate.Response{ErrorCode: 15, ErrorMessage: "try again"}, false, "try again"},
		"no way in":     {"a.secret.b\x01auth=", nil, false, "a character that no token has"},
	} {
		told := 0
		err := loginOf(t, SASL{
			Mechanism: "oauthbearer", Password: c.token, Extensions: map[string]string{"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
			Refused: func(err error) error {
				told++
				return err
			},
		}, func(f *fake, conn net.Conn) {
			id, req := f.Next(conn)
			if r, ok := req.(*saslhandshake.Request); !ok || r.Mechanism != "OAUTHBEARER" {
				f.Errorf("%s: got %+v", name, req)
				return
			}
			f.answer(conn, 1, id, &saslhandshake.Response{})
			if c.answer == nil {
				return
			}
			id, req = f.Next(conn)
			if r, ok := req.(*saslauthenticate.Request); !ok || string(r.AuthBytes) != want {
				f.Errorf("%s: got %+v", name, req)
				return
			}
			f.answer(conn, 1, id, c.answer)
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) ||
			errors.Is(err, ErrLogin) != c.refused || (told > 0) != c.refused || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, and Refused is called %d times", name, err, told)
		}
	}
}
