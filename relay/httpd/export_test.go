package httpd

// Local is local.
var Local = local
