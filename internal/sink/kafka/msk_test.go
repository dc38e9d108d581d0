package kafka

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// noAWS leaves AWS's SDK nothing but what a test sets.
func noAWS(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// The token is a request that AWS's rules sign: signed here once more, without AWS's code. (MSK
// itself was not tried.)
func TestMSKToken(t *testing.T) {
	noAWS(t)
	const secret = "wJalrXUtnFEMI/K7MDENG"
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_SESSION_TOKEN", "session+token/=")
	s := SASL{Mechanism: mskIAM, Region: "eu-central-1"}
	login, err := s.login()()
	if err != nil || login.Mechanism != oauthBearer {
		t.Fatalf("%+v, %v", login, err)
	}
	token, err := login.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatalf("%s: %v", token, err)
	}
	u, err := url.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	at, err := time.Parse("20060102T150405Z", query.Get("X-Amz-Date"))
	if err != nil || time.Since(at) > time.Hour || time.Since(at) < -time.Hour {
		t.Errorf("signed at %v, %v", at, err)
	}
	scope := at.Format("20060102") + "/eu-central-1/kafka-cluster/aws4_request"
	for name, want := range map[string]string{
		"Action": "kafka-cluster:Connect", "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": "AKIDEXAMPLE/" + scope,
		"X-Amz-Expires": "900", "X-Amz-SignedHeaders": "host", "X-Amz-Security-Token": "session+token/=",
	} {
		if got := query.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if u.Scheme != "https" || u.Host != "kafka.eu-central-1.amazonaws.com" || u.Path != "/" || query.Get("User-Agent") == "" {
		t.Errorf("the request is %s", u)
	}
	signature := query.Get("X-Amz-Signature")
	query.Del("X-Amz-Signature")
	query.Del("User-Agent") // it is added to the signed request
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	request := "GET\n/\n" + strings.ReplaceAll(query.Encode(), "+", "%20") + "\nhost:" + u.Host + "\n\nhost\n" + hash("")
	key := []byte("AWS4" + secret)
	for _, part := range append(strings.Split(scope, "/"), "AWS4-HMAC-SHA256\n"+query.Get("X-Amz-Date")+"\n"+scope+"\n"+hash(request)) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if want := hex.EncodeToString(key); signature != want {
		t.Errorf("the signature is %s, want %s", signature, want)
	}
}

// What a credential_process prints is in no error.
func TestMSKCredentialProcess(t *testing.T) {
	noAWS(t)
	tool := filepath.Join(t.TempDir(), "tool")
	for _, lines := range []string{
		`echo a warning; echo '{"Version": 1, "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "xyzzy"}'`,
		`echo '{"Version": 7, "SecretAccessKey": "xyzzy"}'`,
		`echo xyzzy; exit 1`,
	} {
		if err := errors.Join(
			os.WriteFile(tool, []byte("#!/bin/sh\n"+lines+"\n"), 0o700),
			os.WriteFile(os.Getenv("AWS_CONFIG_FILE"), []byte("[default]\nregion = eu-central-1\ncredential_process = "+tool+"\n"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
		_, err := mskTokens("").Token(t.Context())
		if err == nil || err.Error() != "get a token: sign with the credentials of AWS: credential_process printed no valid credentials, or failed" {
			t.Errorf("%s: got %v", lines, err)
		}
	}
}

// Without a region or credentials it says what to set.
func TestMSKWithoutAWS(t *testing.T) {
	noAWS(t)
	for region, want := range map[string]string{"": "set sink.kafka.sasl.region, or AWS_REGION", "eu-central-1": "sign with the credentials of AWS: "} {
		s := SASL{Mechanism: mskIAM, Region: region}
		login, err := s.login()()
		if err != nil {
			t.Fatal(err)
		}
		if token, err := login.Token(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(fixRefusal(err), "sink.kafka.sasl") {
			t.Errorf("region %q: got %q, %v; %s", region, token, err, fixRefusal(err))
		}
	}
}
