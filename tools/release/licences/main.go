// Command licences checks the licences that lists of modules (CycloneDX, as JSON) have found: each
// module must have one that the relay may be distributed with. A module without one is an error.
//
//	licences FILE...
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// allowed are SPDX names of licences that ask for their text and notice, which the notices have.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// read are modules whose licence was read by a person, because the detector knows none.
var read = map[string]string{
	"github.com/cenkalti/backoff/v5": "MIT",
	"std":                            "BSD-3-Clause",
}

const ours = "github.com/cdc-relay/cdc-relay"

func main() {
	seen, faults := map[string]bool{}, []error{}
	for _, file := range os.Args[1:] {
		faults = append(faults, check(file, seen))
	}
	if err := errors.Join(faults...); err != nil || len(seen) == 0 {
		fmt.Fprintln(os.Stderr, errors.Join(err, fmt.Errorf("licences: %d modules have a licence that is allowed: %s", len(seen), strings.Join(allowed, ", "))))
		os.Exit(1)
	}
	fmt.Printf("licences: %d modules, each with one of %s\n", len(seen), strings.Join(allowed, ", "))
}

// check adds the modules of a list that are in order to seen.
func check(file string, seen map[string]bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var list cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&list); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if list.Components == nil {
		return fmt.Errorf("%s has no modules", file)
	}
	var faults []error
	for _, module := range *list.Components {
		if module.Name == ours || strings.HasPrefix(module.Name, ours+"/") {
			continue
		}
		name := module.Name + " " + module.Version
		licences := found(module)
		switch {
		case len(licences) == 0:
			faults = append(faults, fmt.Errorf("licences: %s has none that is known", name))
		case slices.ContainsFunc(licences, func(l string) bool { return !slices.Contains(allowed, l) }):
			faults = append(faults, fmt.Errorf("licences: %s has %s", name, strings.Join(licences, ", ")))
		default:
			seen[name] = true
		}
	}
	return errors.Join(faults...)
}

func found(module cdx.Component) (licences []string) {
	if licence, ok := read[module.Name]; ok {
		return []string{licence}
	}
	if module.Evidence == nil || module.Evidence.Licenses == nil {
		return nil
	}
	for _, choice := range *module.Evidence.Licenses {
		if choice.License != nil {
			licences = append(licences, choice.License.ID)
		}
	}
	return licences
}
