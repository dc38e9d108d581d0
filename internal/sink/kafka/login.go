// The login at Kafka: its settings, and what the client logs in with.

package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The mechanisms of sasl.mechanism that log in with a token. MSK takes a signed request for one.
const (
	oauthBearer = "oauthbearer"
	mskIAM      = "aws-msk-iam"
)

// SASL is the login.
type SASL struct {
	Mechanism          string         // "" means no login
	Username, Password setting.Secret // of plain and scram
	OAuth              sink.OAuth     // of oauthbearer
	Extensions         map[string]string
	Region             string // of aws-msk-iam; "": that of AWS's own variables
	RoleARN            string // of aws-msk-iam; "": the process's own identity
}

const saslSection = section + "sasl."

func (s *SASL) keys() []setting.Key {
	mechanism := setting.Choice("sasl.mechanism", &s.Mechanism, "", "plain", "scram-sha-256", "scram-sha-512", oauthBearer, mskIAM).
		Doc("The login.", "Empty: none. [Tokens](kafka.md#tokens-of-an-issuer) are `oauthbearer`, [IAM of Amazon MSK](kafka.md#amazon-msk-with-iam) is `aws-msk-iam`.")
	mechanism.Values = "`plain`, `scram-sha-256`, `…-512`, `oauthbearer` or `aws-msk-iam`"
	keys := []setting.Key{
		mechanism,
		setting.Password("sasl.username", &s.Username).
			Doc("The user of the login."),
		setting.Password("sasl.password", &s.Password).
			Doc("The password of the login, usually `${file:/run/secrets/...}`."),
	}
	return append(append(keys, s.OAuth.Keys("sasl.oauth.")...),
		extensionsKey("sasl.extensions", &s.Extensions).
			Doc("What goes with the token of `oauthbearer`: `{name: value}`.",
				"Confluent Cloud wants `logicalCluster` and `identityPoolId`."),
		setting.Text("sasl.region", &s.Region).
			Doc("The AWS region of `aws-msk-iam`.", "Empty: that of `AWS_REGION` or `AWS_DEFAULT_REGION`."),
		setting.Text("sasl.role_arn", &s.RoleARN).
			Doc("The role that `aws-msk-iam` assumes.", "Empty: none, the identity of the process logs in."),
	)
}

// login returns a function that gives what a new connection logs in with. It is nil when there is
// no login. An issuer that refuses this client counts as a refused login: it does not pass by
// itself.
func (s *SASL) login() func(ctx context.Context) (*kafkaclient.SASL, error) {
	mechanism, logins := s.Mechanism, sink.SecretLogins(saslSection, s.Username, s.Password)
	switch mechanism {
	case "":
		return nil
	case oauthBearer:
		logins = s.OAuth.Tokens(saslSection+"oauth.").Logins("", setting.Secret{})
	case mskIAM:
		mechanism, logins = oauthBearer, mskTokens(s.Region, s.RoleARN).Logins("", setting.Secret{})
	}
	return func(ctx context.Context) (*kafkaclient.SASL, error) {
		l, err := logins.Read(ctx)
		if failed := (*sink.TokenError)(nil); errors.As(err, &failed) && failed.Refused() {
			err = fmt.Errorf("%w: %w", kafkaclient.ErrLogin, err)
		}
		return &kafkaclient.SASL{
			Mechanism: mechanism, Username: l.User, Password: l.Password, Extensions: s.Extensions,
			Refused: func(err error) error { return logins.Refused(l, err) },
		}, err
	}
}

// fault returns why no login can be made in this environment, whatever is asked; nil: it can.
func (s *SASL) fault() error {
	if s.Mechanism != mskIAM {
		return nil
	}
	_, _, err := awsIdentity(s.Region)
	return err
}

func (s *SASL) validate(v *sink.Validation, tls bool) {
	if v.IsFaulty(saslSection + "mechanism") {
		return
	}
	byPassword := s.Mechanism != "" && s.Mechanism != oauthBearer && s.Mechanism != mskIAM
	for _, part := range []struct {
		key   string
		value setting.Secret
	}{{saslSection + "username", s.Username}, {saslSection + "password", s.Password}} {
		switch {
		case v.IsFaulty(part.key):
		case byPassword && !part.value.IsSet():
			v.FaultAt(part.key, fmt.Errorf("is not set, and sasl.mechanism %s needs it", s.Mechanism))
		case !byPassword && part.value.IsSet():
			v.FaultAt(part.key, errors.New("has no effect without sasl.mechanism: plain, scram-sha-256 or scram-sha-512"))
		}
	}
	s.OAuth.Validate(v, "sasl.oauth.", s.Mechanism == oauthBearer, "sasl.mechanism: "+oauthBearer)
	if s.Mechanism != oauthBearer && len(s.Extensions) > 0 {
		v.FaultAt(saslSection+"extensions", errors.New("has no effect without sasl.mechanism: "+oauthBearer))
	}
	for key, value := range map[string]string{"region": s.Region, "role_arn": s.RoleARN} {
		if s.Mechanism != mskIAM && value != "" {
			v.FaultAt(saslSection+key, errors.New("has no effect without sasl.mechanism: "+mskIAM))
		}
	}
	if s.Mechanism == mskIAM && !tls {
		v.FaultAt(saslSection+"mechanism", errors.New("is "+mskIAM+", which MSK takes over TLS only: set tls: {enabled: true}"))
	}
}

var (
	extensionName  = lazy.Regexp(`^[A-Za-z]+$`)
	extensionValue = lazy.Regexp(`^[\x20-\x7e]+$`)
)

// extensionsKey is the key of a mapping of names to texts.
func extensionsKey(name string, at *map[string]string) setting.Key {
	return setting.Key{
		Name: name, Kind: setting.Mapping,
		Form: setting.NamedColumns(setting.Form{"pattern": "^[A-Za-z]+$", "not": setting.Form{"const": "auth"}}),
		Set: func(r *setting.Reader, path string, n *setting.Node) {
			*at = map[string]string{}
			if n.Kind != setting.Mapping {
				r.Fault(n.Where, path, "wants a mapping of name: value, has "+n.Kind.String())
				return
			}
			for _, e := range n.Entries {
				value, ok := r.Scalar(path+"."+e.Name, e.Value)
				switch {
				case !ok:
				case !extensionName().MatchString(e.Name) || e.Name == "auth":
					r.Fault(e.Where, path+"."+e.Name, "is no name of an extension: want a to z and A to Z, and not auth")
				case !extensionValue().MatchString(value):
					r.Fault(e.Value.Where, path+"."+e.Name, "wants a text of printable ASCII characters")
				default:
					(*at)[e.Name] = value
				}
			}
		},
		Show: func() string {
			var shown []string
			for _, name := range slices.Sorted(maps.Keys(*at)) {
				shown = append(shown, strconv.Quote(name)+": "+setting.Quote((*at)[name]))
			}
			return "{" + strings.Join(shown, ", ") + "}"
		},
	}
}
