package main

import "net/url"

// redacted is a Redis URL without its password, for people and reports.
func redacted(redisURL string) string {
	u, err := url.Parse(redisURL)
	if err != nil {
		return "(not a URL)"
	}
	return u.Redacted()
}
