// The login at Amazon MSK with IAM: a request that is signed by AWS's rules is the token.

package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"golang.org/x/oauth2"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// mskTokens signs with the credentials that AWS's SDK finds: variables, files, web identity,
// container, instance. Each token has what they are at that time.
func mskTokens(region string) *sink.TokenSource {
	const fix = "check the rights of the AWS identity (kafka-cluster:Connect and those of the topics), sasl.region, and that this is the port of IAM, 9098"
	return sink.NewTokenSource(saslSection, fix, func(ctx context.Context) (*oauth2.Token, error) {
		var options []func(*config.LoadOptions) error
		if region != "" {
			options = append(options, config.WithRegion(region))
		}
		cfg, err := config.LoadDefaultConfig(ctx, options...)
		if err != nil {
			return nil, explainAWS("read AWS's configuration: ", err)
		}
		if cfg.Region == "" {
			return nil, errors.New("the AWS region is not known: set " + saslSection + "region, or AWS_REGION")
		}
		token, expires, err := signer.GenerateAuthTokenFromCredentialsProvider(ctx, cfg.Region, cfg.Credentials)
		if err != nil {
			return nil, explainAWS("sign with the credentials of AWS: ", err)
		}
		return &oauth2.Token{AccessToken: token, Expiry: time.UnixMilli(expires)}, nil
	})
}

// explainAWS makes one line of an error of AWS's SDK. The SDK quotes all that a credential_process
// prints: the secret key, too.
func explainAWS(what string, err error) error {
	if process := (*processcreds.ProviderError)(nil); errors.As(err, &process) {
		return errors.New(what + "credential_process printed no valid credentials, or failed")
	}
	return errors.New(what + sink.CutText(err.Error()))
}
