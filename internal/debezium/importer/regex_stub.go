package importer

import "regexp"

func javaRegex(p string) (*regexp.Regexp, error) { return regexp.Compile(p) }

func optionFaults(string, map[string]string) []optionFault { return nil }
