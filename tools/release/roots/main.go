// Command roots prints Mozilla's root certificates as PEM, for the image: those of a version that
// go.mod pins, so that the same commit gives the same image on every machine. As curl's bundle, it
// leaves out those that Mozilla trusts only for certificates from before a date: PEM cannot say so.
package main

import (
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			fmt.Fprintln(os.Stderr, "roots:", err)
			os.Exit(1)
		}
	}
}
