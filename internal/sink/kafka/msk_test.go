package kafka

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// onlyAWS leaves the process nothing of AWS but what a test sets.
func onlyAWS(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

const awsSecret = "wJalrXUtnFEMI/K7MDENG"

// The token is the one that AWS's aws-msk-iam-sasl-signer-go v1.0.4 makes of the same keys at the
// same time. These two were made by it in a synctest bubble. The rest of the relay's has another
// name of the program, which nothing signs.
func TestMSKTokenAsAWSMakesIt(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ region, session, want string }{
		{
			"eu-central-1", "session+token/=",
			"https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect&User-Agent=aws-msk-iam-sasl-signer-go%2F1.0.4%2Fgo1.26.8&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20000101%2Feu-central-1%2Fkafka-cluster%2Faws4_request&X-Amz-Date=20000101T000000Z&X-Amz-Expires=900&X-Amz-Security-Token=session%2Btoken%2F%3D&X-Amz-Signature=1c76938df84b191efe4970c5fc2e5ab39266f1b692cab70e4b5107488240d070&X-Amz-SignedHeaders=host",
		},
		{
			"us-east-1", "",
			"https://kafka.us-east-1.amazonaws.com/?Action=kafka-cluster%3AConnect&User-Agent=aws-msk-iam-sasl-signer-go%2F1.0.4%2Fgo1.26.8&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20000101%2Fus-east-1%2Fkafka-cluster%2Faws4_request&X-Amz-Date=20000101T000000Z&X-Amz-Expires=900&X-Amz-Signature=d7bce55ba42c65d0eff490d4a556fac1e07670384171d8c8c497945c325be4ce&X-Amz-SignedHeaders=host",
		},
	} {
		keys := aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: awsSecret, SessionToken: c.session}
		token, err := signConnect(t.Context(), c.region, keys, now)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(c.want, "aws-msk-iam-sasl-signer-go%2F1.0.4%2Fgo1.26.8", "cdc-relay", 1)
		got, err := base64.RawURLEncoding.DecodeString(token.AccessToken)
		if err != nil || string(got) != want || token.Expiry.UnixMilli() != 946685700000 {
			t.Errorf("%s, until %s, %v; want\n%s", got, token.Expiry, err, want)
		}
		keys.CanExpire, keys.Expires = true, now.Add(time.Minute)
		if token, err = signConnect(t.Context(), c.region, keys, now); err != nil || token.Expiry != keys.Expires {
			t.Errorf("a token of keys that end at %s ends at %s, %v", keys.Expires, token.Expiry, err)
		}
	}
}

// The token is a request that AWS's rules sign: signed here once more, without AWS's code. (MSK
// itself was not tried.)
func TestMSKToken(t *testing.T) {
	onlyAWS(t, map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": awsSecret, "AWS_SESSION_TOKEN": "session+token/="})
	s := SASL{Mechanism: mskIAM, Region: "eu-central-1"}
	login, err := s.login()(t.Context())
	if err != nil || login.Mechanism != oauthBearer {
		t.Fatalf("%+v, %v", login, err)
	}
	text, err := base64.RawURLEncoding.DecodeString(login.Password)
	if err != nil {
		t.Fatalf("%s: %v", login.Password, err)
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
	key := []byte("AWS4" + awsSecret)
	for _, part := range append(strings.Split(scope, "/"), "AWS4-HMAC-SHA256\n"+query.Get("X-Amz-Date")+"\n"+scope+"\n"+hash(request)) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if want := hex.EncodeToString(key); signature != want {
		t.Errorf("the signature is %s, want %s", signature, want)
	}
}

// fakeAWS answers as AWS's own services do: STS, the agent of a container, and the instance.
func fakeAWS(t *testing.T) (address string) {
	t.Helper()
	keys := func(id string) string {
		return `{"AccessKeyId": "` + id + `", "SecretAccessKey": "s", "Token": "t", "Code": "Success", "Expiration": "` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/container" && r.Header.Get("Authorization") == "pod's own":
			_, _ = io.WriteString(w, keys("AKIDCONTAINER"))
		case r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
			_, _ = io.WriteString(w, "session")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			_, _ = io.WriteString(w, "role-of-the-host")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/role-of-the-host":
			_, _ = io.WriteString(w, keys("AKIDINSTANCE"))
		case r.URL.Path != "/":
			http.Error(w, "{}", http.StatusForbidden)
		default:
			action := r.PostFormValue("Action")
			signedBy, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="), "/")
			id := "AKID" + r.PostFormValue("RoleArn")[len("arn:aws:iam::1:role/"):]
			if r.PostFormValue("RoleArn") == "arn:aws:iam::1:role/BUSY" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>`)
				return
			}
			if action == "AssumeRole" && signedBy == "" || action == "AssumeRoleWithWebIdentity" && r.PostFormValue("WebIdentityToken") != "jwt" {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized to perform %s</Message></Error><RequestId>%d</RequestId></ErrorResponse>`, action, time.Now().UnixNano())
				return
			}
			fmt.Fprintf(w, `<%[1]sResponse><%[1]sResult><Credentials><AccessKeyId>%[2]s%[3]s</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>%[4]s</Expiration></Credentials></%[1]sResult></%[1]sResponse>`,
				action, id, signedBy, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Whose keys sign: those of the first source that there is.
func TestMSKCredentials(t *testing.T) {
	address := fakeAWS(t)
	jwt, wrong := filepath.Join(t.TempDir(), "jwt"), filepath.Join(t.TempDir(), "wrong")
	if err := errors.Join(os.WriteFile(jwt, []byte("jwt"), 0o600), os.WriteFile(wrong, []byte("pod's own"), 0o600)); err != nil {
		t.Fatal(err)
	}
	pod := map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": address + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": wrong}
	web := map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": jwt, "AWS_ROLE_ARN": "arn:aws:iam::1:role/WEB", "AWS_ENDPOINT_URL_STS": address}
	denied := maps.Clone(web)
	denied["AWS_WEB_IDENTITY_TOKEN_FILE"] = wrong
	busy := maps.Clone(web)
	busy["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/BUSY"
	refused := []string{"denied", "no agent", "files"} // which do not pass by themselves
	for name, c := range map[string]struct {
		variables map[string]string
		role      string
		key, err  string
	}{
		"variables":    {map[string]string{"AWS_ACCESS_KEY_ID": "AKIDOWN", "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "x"}, "", "AKIDOWN", ""},
		"web identity": {web, "", "AKIDWEB", ""},
		"denied":       {denied, "", "", "get a token: get credentials from AWS: AccessDenied: Not authorized to perform AssumeRoleWithWebIdentity"},
		"busy":         {busy, "", "", "get a token: get credentials from AWS: Throttling: Rate exceeded"},
		"pod":          {pod, "", "AKIDCONTAINER", ""},
		"task":         {map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": address + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod's own"}, "", "AKIDCONTAINER", ""},
		"no agent":     {map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://10.0.0.1/"}, "", "", "is no address of an agent"},
		"instance":     {map[string]string{"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": address}, "", "AKIDINSTANCE", ""},
		"role": {
			map[string]string{"AWS_ACCESS_KEY_ID": "AKIDOWN", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL_STS": address},
			"arn:aws:iam::1:role/OTHER", "AKIDOTHERAKIDOWN", "",
		},
		"nothing": {nil, "", "", "get credentials from AWS: "},
		"files":   {map[string]string{"AWS_PROFILE": "x"}, "", "", "AWS_PROFILE is set, and the relay reads no file of AWS's tools"},
	} {
		t.Run(name, func(t *testing.T) {
			onlyAWS(t, c.variables)
			token, err := mskTokens("eu-central-1", c.role).Token(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(fixRefusal(err), "docs/kafka.md#amazon-msk-with-iam") {
					t.Errorf("got %v, want %s", err, c.err)
				}
				_, err = (&SASL{Mechanism: mskIAM, Region: "eu-central-1", RoleARN: c.role}).login()(t.Context())
				if errors.Is(err, kafkaclient.ErrLogin) != slices.Contains(refused, name) {
					t.Errorf("a refused login: %v", err)
				}
				return
			}
			text, decoded := base64.RawURLEncoding.DecodeString(token)
			if errors.Join(err, decoded) != nil || !strings.Contains(string(text), "Credential="+c.key+"%2F") {
				t.Errorf("got %s, %v, want the key %s", text, err, c.key)
			}
		})
	}
}

// Without a region it says what to set, and a wrong one is no other host. Neither starts.
func TestMSKRegion(t *testing.T) {
	for region, want := range map[string]string{"": "set sink.kafka.sasl.region, or AWS_REGION", "x y": "no region is called"} {
		onlyAWS(t, map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"})
		if token, err := mskTokens(region, "").Token(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("region %q: got %q, %v", region, token, err)
		}
		set := defaultSettings()
		set.SASL.Mechanism, set.SASL.Region, set.Topic = mskIAM, region, sink.MustTemplate("events")
		opened, err := set.Open(&sink.Opening{Log: zap.NewNop()})
		must(t, err)
		var stop *event.Stop
		if err := opened.Run(t.Context()); !errors.As(err, &stop) || stop.Code != event.ExitUsage || !strings.Contains(stop.What, want) {
			t.Errorf("region %q: it runs: %v", region, err)
		}
	}
}
