// Package accesslog reads the access logs of web servers, in Common or Combined
// Log Format, plain or gzipped:
//
//	host ident user [02/Jan/2006:15:04:05 -0700] "METHOD path PROTO" status bytes "referer" "agent"
//
// Real logs are not clean: lines are cut, clients send garbage, paths hold
// quotes and spaces. A line that cannot be read is skipped and counted, and the
// first few are kept to be shown; it never ends the reading.
//
// Two common extensions are read as well: fractions of a second in the time,
// and the virtual host with its port that Apache's vhost_combined puts first.
package accesslog
