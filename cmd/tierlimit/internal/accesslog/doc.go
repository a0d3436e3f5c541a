// Package accesslog reads logs of requests, plain or gzipped: the access logs of web servers in
// Common or Combined Log Format,
//
//	host ident user [02/Jan/2006:15:04:05 -0700] "METHOD path PROTO" status bytes "referer" "agent"
//
// lines of JSON with fields like time, host (or key), user, path, bytes and cost, and plain lines that
// consist of a time, a key and, if it is not 1, the cost:
//
//	2006-01-02T15:04:05.123Z alice 3
//	1136214245.123 alice
//
// Lines of Envoy, HAProxy and Amazon's load balancers are read, too. A header may name the columns of
// the lines below it, and a log may be an array of JSON objects. Each line may have a different format.
//
// Real logs are not clean: lines are cut off, clients send garbage, paths contain quotes and spaces. A
// bad line never ends the reading: it is skipped and counted, and the first few are kept to be shown.
//
// Common extensions are also read: fractions of a second in the time, the virtual host with its port
// that Apache's vhost_combined puts first, addresses of X-Forwarded-For in front, the prefixes that
// syslog, journald or Docker put in front of a line, and the objects in which Filebeat and others put it.
package accesslog
