// Users and their passwords.

package kafkaserver

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/alteruserscramcredentials"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// addUsers gives the users of the options their SCRAM passwords; those of PLAIN are in the
// properties.
func (k *Kafka) addUsers(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(k.opt.Users)) {
		if err := k.setScram(ctx, name, k.opt.Users[name]); err != nil {
			return fmt.Errorf("add user %s: %w", name, err)
		}
		if err := k.awaitLogin(ctx, name, k.opt.Users[name]); err != nil {
			return fmt.Errorf("add user %s: %w", name, err)
		}
	}
	return nil
}

// SetPassword changes the password of a user, or adds one, and returns when every running broker
// takes it with SCRAM. With PLAIN, which a broker reads from its file, a node takes it from its
// next start on. Connections that are logged in stay.
func (k *Kafka) SetPassword(ctx context.Context, name, password string) error {
	k.opt.Users = maps.Clone(k.opt.Users)
	k.opt.Users[name] = password
	err := k.setScram(ctx, name, password)
	for _, n := range k.nodes {
		if err == nil {
			err = n.writeProperties(k.opt, k.nodes)
		}
	}
	if err == nil {
		err = k.awaitLogin(ctx, name, password)
	}
	if err != nil {
		return fmt.Errorf("set password of %s: %w", name, err)
	}
	return nil
}

// The protocol's numbers of the mechanisms.
const (
	scramSHA256 = 1
	scramSHA512 = 2
)

// setScram sets the passwords of the two mechanisms, in a request each: one that names a user twice
// is refused.
func (k *Kafka) setScram(ctx context.Context, name, password string) error {
	const iterations = 4096
	salt := []byte(rand.Text())
	salted256, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return err
	}
	salted512, err := pbkdf2.Key(sha512.New, password, salt, iterations, sha512.Size)
	if err != nil {
		return err
	}
	for mechanism, salted := range map[int8][]byte{scramSHA256: salted256, scramSHA512: salted512} {
		err := change(ctx, k, &alteruserscramcredentials.Request{
			Upsertions: []alteruserscramcredentials.RequestUserScramCredentialsUpsertion{
				{Name: name, Mechanism: mechanism, Iterations: iterations, Salt: salt, SaltedPassword: salted},
			},
		}, func(res *alteruserscramcredentials.Response) error {
			return KafkaError(res.Results[0].ErrorCode, res.Results[0].ErrorMessage)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitLogin returns when every running broker takes the password with both mechanisms of SCRAM.
func (k *Kafka) awaitLogin(ctx context.Context, name, password string) error {
	sha256, err := scram.Mechanism(scram.SHA256, name, password)
	if err != nil {
		return err
	}
	sha512, err := scram.Mechanism(scram.SHA512, name, password)
	if err != nil {
		return err
	}
	for _, n := range k.nodes {
		if !n.server.Running() {
			continue
		}
		for _, mechanism := range []sasl.Mechanism{sha256, sha512} {
			var last error
			err := processes.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
				last = kafkaLogin(ctx, n.addr("SASL"), mechanism)
				return last == nil, nil
			})
			if err != nil {
				return errors.Join(err, last)
			}
		}
	}
	return nil
}

// kafkaLogin logs in over a connection of its own.
func kafkaLogin(ctx context.Context, addr string, mechanism sasl.Mechanism) error {
	dialer := kafkago.Dialer{Timeout: 5 * time.Second, SASLMechanism: mechanism}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("log in to Kafka: %w", err)
	}
	return c.Close()
}
