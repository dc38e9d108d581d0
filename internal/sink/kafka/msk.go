// The login at Amazon MSK with IAM: a request that AWS's signer signs is the token.

package kafka

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/oauth2"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// mskTokens signs with the credentials that the process has from AWS: variables, web identity,
// container, instance; each token with what they are at that time. AWS's package config finds those
// of people, too: profiles, single sign-on. Every start paid 0.4 MB for it, of whatever sink, and
// the binary had 2.7 MB more.
func mskTokens(region, role string) *sink.TokenSource {
	const fix = "check the rights of the AWS identity (kafka-cluster:Connect and those of the topics), sasl.region, this machine's clock, and that this is the port of IAM, 9098"
	return sink.NewTokenSource(saslSection, fix, func(ctx context.Context) (*oauth2.Token, error) {
		region, from, err := awsIdentity(region)
		if err != nil {
			return nil, &sink.NoToken{Text: err.Error(), Fix: fixAWS, Refused: true}
		}
		if role != "" {
			from = stscreds.NewAssumeRoleProvider(stsClient(region, from), role, func(o *stscreds.AssumeRoleOptions) { o.RoleSessionName = awsSession() })
		}
		keys, err := from.Retrieve(ctx)
		if err == nil && !keys.HasKeys() {
			err = errors.New("there is no key in the answer")
		}
		if err != nil {
			return nil, &sink.NoToken{Text: "get credentials from AWS: " + awsErrorText(err), Fix: fixAWS, Refused: refusedByAWS(err)}
		}
		return signConnect(ctx, region, keys, time.Now().UTC().Truncate(time.Second))
	})
}

const fixAWS = "check the role, the region and the source of the credentials: docs/kafka.md#amazon-msk-with-iam"

var regionName = lazy.Regexp(`^[a-z0-9-]+$`)

// awsIdentity returns the region, and where the process has its credentials from. It asks nobody:
// an error is a fault of the configuration or the environment, which lasts as long as the process.
func awsIdentity(region string) (string, aws.CredentialsProvider, error) {
	region = cmp.Or(region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	switch {
	case region == "":
		return "", nil, errors.New("the AWS region is not known: set " + saslSection + "region, or AWS_REGION")
	case !regionName().MatchString(region):
		return "", nil, errors.New(saslSection + "region, or AWS_REGION: no region is called " + strconv.Quote(region))
	}
	from, err := awsCredentials(region)
	return region, from, err
}

// refusedByAWS reports whether AWS has answered that this identity gets no credentials.
func refusedByAWS(err error) bool {
	var api smithy.APIError
	var answer *smithyhttp.ResponseError
	if !errors.As(err, &api) || !errors.As(err, &answer) {
		return false
	}
	_, throttled := retry.DefaultThrottleErrorCodes[api.ErrorCode()]
	switch status := answer.HTTPStatusCode(); {
	case throttled, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, api.ErrorCode() == "IDPCommunicationError":
		return false
	default:
		return status >= 400 && status < 500
	}
}

// awsCredentials is where the process has its credentials from.
func awsCredentials(region string) (aws.CredentialsProvider, error) {
	key, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	identity := os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE")
	container := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") // EKS
	if path := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		container = "http://169.254.170.2" + path // ECS
	}
	switch {
	case key != "" && secret != "":
		return credentials.NewStaticCredentialsProvider(key, secret, os.Getenv("AWS_SESSION_TOKEN")), nil
	case identity != "":
		return stscreds.NewWebIdentityRoleProvider(stsClient(region, nil), os.Getenv("AWS_ROLE_ARN"), stscreds.IdentityTokenFile(identity),
			func(o *stscreds.WebIdentityRoleOptions) { o.RoleSessionName = awsSession() }), nil
	case container != "":
		u, err := url.Parse(container)
		agents := []string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}
		if err != nil || u.Scheme != "https" && !sink.Loopback(u.Hostname()) && !slices.Contains(agents, u.Hostname()) {
			return nil, errors.New("AWS_CONTAINER_CREDENTIALS_FULL_URI is no address of an agent of AWS's, of this host, or with https")
		}
		return endpointcreds.New(container, func(o *endpointcreds.Options) {
			o.AuthorizationToken = os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
			if file := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
				o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(func() (string, error) {
					text, err := os.ReadFile(file)
					return string(text), err
				})
			}
		}), nil
	}
	for _, name := range []string{"AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		if os.Getenv(name) != "" {
			return nil, errors.New(name + " is set, and the relay reads no file of AWS's tools: give it AWS_ACCESS_KEY_ID and the others, a web identity, or the role of its container or instance")
		}
	}
	return ec2rolecreds.New(), nil
}

func awsSession() string { return cmp.Or(os.Getenv("AWS_ROLE_SESSION_NAME"), "cdc-relay") }

// stsClient asks AWS for the credentials of a role, by those of from; nil: by a token of the
// request.
func stsClient(region string, from aws.CredentialsProvider) *sts.Client {
	o := sts.Options{Region: region, Credentials: from}
	if address := os.Getenv("AWS_ENDPOINT_URL_STS"); address != "" {
		o.BaseEndpoint = &address
	}
	return sts.New(o)
}

// awsErrorText is one line about an error of AWS's SDK, the same for the same cause: the SDK's own
// has the number of the request.
func awsErrorText(err error) string {
	if api := smithy.APIError(nil); errors.As(err, &api) {
		return sink.CutText(api.ErrorCode() + ": " + api.ErrorMessage())
	}
	return sink.CutText(err.Error())
}

// signConnect makes a token for 15 minutes, or for as long as the keys are good, as AWS's
// aws-msk-iam-sasl-signer-go does.
func signConnect(ctx context.Context, region string, keys aws.Credentials, now time.Time) (*oauth2.Token, error) {
	const ofNoBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://kafka."+region+".amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Expires=900", http.NoBody)
	if err != nil {
		return nil, errors.New("sign with the credentials of AWS: the address cannot be made")
	}
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, keys, request, ofNoBody, "kafka-cluster", region, now)
	if err != nil {
		return nil, errors.New("sign with the credentials of AWS: " + sink.CutText(err.Error()))
	}
	u, err := url.Parse(signed)
	if err != nil {
		return nil, errors.New("sign with the credentials of AWS: the signed address cannot be parsed")
	}
	query := u.Query()
	query.Set("User-Agent", "cdc-relay")
	u.RawQuery = query.Encode()
	ends := now.Add(15 * time.Minute)
	if keys.CanExpire && keys.Expires.Before(ends) {
		ends = keys.Expires
	}
	return &oauth2.Token{AccessToken: base64.RawURLEncoding.EncodeToString([]byte(u.String())), Expiry: ends}, nil
}
