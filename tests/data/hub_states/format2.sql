-- A state in a file, made by kubewright at 93bddbc (format 2) with the key 00 01 .. 1f.
BEGIN TRANSACTION;
CREATE TABLE clusters (name TEXT PRIMARY KEY, document TEXT NOT NULL, secrets BLOB NOT NULL) STRICT;
INSERT INTO "clusters" VALUES('a','{"approval": "human", "client_ca": "-----BEGIN CERTIFICATE-----\nMIIBYDCCAQagAwIBAgIIHFpzKXIm0/kwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJ\nY2xpZW50LWNhMB4XDTI2MDEwMjAyNTkwNVoXDTM1MTIzMTAzMDQwNVowFDESMBAG\nA1UEAwwJY2xpZW50LWNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEicp1C21u\n1dmHnuUsBWsSUlnjVBrXqdpz0tdNEUef/0FiMtbd13V0bClGKuE+/YbzWM4nbsHs\ncNIHG8Leu8hIJqNCMEAwDgYDVR0PAQH/BAQDAgKkMA8GA1UdEwEB/wQFMAMBAf8w\nHQYDVR0OBBYEFLp9EK23Ns4nmE45opL1T8OFcD/EMAoGCCqGSM49BAMCA0gAMEUC\nIQCrEmoW76EznO81Vts5AtwQtPKgwiO57adQ3xBgNmNiHQIgFG4JeXCmTNgJBhM+\nnBP0gva5Nc12A7b1RePWMx94ijI=\n-----END CERTIFICATE-----\n", "domain": "cluster.local", "kept": 3600, "key_algorithm": "RSA-2048", "kubelet_client_ca": "-----BEGIN CERTIFICATE-----\nMIIBYDCCAQagAwIBAgIIHFpzKXIm0/kwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJ\nY2xpZW50LWNhMB4XDTI2MDEwMjAyNTkwNVoXDTM1MTIzMTAzMDQwNVowFDESMBAG\nA1UEAwwJY2xpZW50LWNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEicp1C21u\n1dmHnuUsBWsSUlnjVBrXqdpz0tdNEUef/0FiMtbd13V0bClGKuE+/YbzWM4nbsHs\ncNIHG8Leu8hIJqNCMEAwDgYDVR0PAQH/BAQDAgKkMA8GA1UdEwEB/wQFMAMBAf8w\nHQYDVR0OBBYEFLp9EK23Ns4nmE45opL1T8OFcD/EMAoGCCqGSM49BAMCA0gAMEUC\nIQCrEmoW76EznO81Vts5AtwQtPKgwiO57adQ3xBgNmNiHQIgFG4JeXCmTNgJBhM+\nnBP0gva5Nc12A7b1RePWMx94ijI=\n-----END CERTIFICATE-----\n", "kubelet_config": {"failCgroupV1": false}, "kubernetes_version": "v1.36.3", "lifetime": 31536000, "name": "a", "names": [], "node_names": [], "open_addresses": true, "pod_subnets": [], "ranges": [], "reserved": [], "server": "https://10.0.0.1:6443", "server_ca": "API CA", "service_subnet": "10.96.0.0/12", "serving_ca": "SERVING CA", "vpn": null, "waits": 86400}',X'3365093AE54FD35EA7F758F665174CBC3C2915757323003671A4CCE58DB386276EA7254F6D01AB4341474F1A65424BA2DE725DC4A745E2FF81EB5879D504527358E221992A74CB300C48E32B91F892A861C41C2C84904B2EFD083D1F41322B38315C4D905DF33248CCFF4C4DBA72F6F18ED3B48091B2BEF57CAFA108177E482973704AD9307C0AA8D278D9F8E968688BA133AA15C5721384433610E1AB');
INSERT INTO "clusters" VALUES('b','{"approval": "automatic", "client_ca": "-----BEGIN CERTIFICATE-----\nMIIBYDCCAQagAwIBAgIIHFpzKXIm0/kwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJ\nY2xpZW50LWNhMB4XDTI2MDEwMjAyNTkwNVoXDTM1MTIzMTAzMDQwNVowFDESMBAG\nA1UEAwwJY2xpZW50LWNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEicp1C21u\n1dmHnuUsBWsSUlnjVBrXqdpz0tdNEUef/0FiMtbd13V0bClGKuE+/YbzWM4nbsHs\ncNIHG8Leu8hIJqNCMEAwDgYDVR0PAQH/BAQDAgKkMA8GA1UdEwEB/wQFMAMBAf8w\nHQYDVR0OBBYEFLp9EK23Ns4nmE45opL1T8OFcD/EMAoGCCqGSM49BAMCA0gAMEUC\nIQCrEmoW76EznO81Vts5AtwQtPKgwiO57adQ3xBgNmNiHQIgFG4JeXCmTNgJBhM+\nnBP0gva5Nc12A7b1RePWMx94ijI=\n-----END CERTIFICATE-----\n", "domain": "cluster.local", "kept": 3600, "key_algorithm": "RSA-2048", "kubelet_client_ca": "-----BEGIN CERTIFICATE-----\nMIIBYDCCAQagAwIBAgIIHFpzKXIm0/kwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJ\nY2xpZW50LWNhMB4XDTI2MDEwMjAyNTkwNVoXDTM1MTIzMTAzMDQwNVowFDESMBAG\nA1UEAwwJY2xpZW50LWNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEicp1C21u\n1dmHnuUsBWsSUlnjVBrXqdpz0tdNEUef/0FiMtbd13V0bClGKuE+/YbzWM4nbsHs\ncNIHG8Leu8hIJqNCMEAwDgYDVR0PAQH/BAQDAgKkMA8GA1UdEwEB/wQFMAMBAf8w\nHQYDVR0OBBYEFLp9EK23Ns4nmE45opL1T8OFcD/EMAoGCCqGSM49BAMCA0gAMEUC\nIQCrEmoW76EznO81Vts5AtwQtPKgwiO57adQ3xBgNmNiHQIgFG4JeXCmTNgJBhM+\nnBP0gva5Nc12A7b1RePWMx94ijI=\n-----END CERTIFICATE-----\n", "kubelet_config": {"failCgroupV1": false}, "kubernetes_version": "v1.36.3", "lifetime": 31536000, "name": "b", "names": [], "node_names": [], "open_addresses": true, "pod_subnets": [], "ranges": [], "reserved": [], "server": "https://10.0.0.1:6443", "server_ca": "API CA", "service_subnet": "10.96.0.0/12", "serving_ca": "SERVING CA", "vpn": null, "waits": 86400}',X'6C361860D1385720A6177031CD231668CF46CAAFF71F779C8A6F4DF465B4AFC5FE1CD99B3F54C7A0391182E5A834DFBC8AEE7D3952894B1986CD272E61D8423100AE5F0BC7CDDE92BE01D97F3BA6F0C78E996DE16DB197A2122B7D2F9BB5448452A3C1B31493A9F645C85138E083E7F37DB3FC56A7CC6E493CBF6F69811E128AC265E0B2852F74BD3F88F30772C004D4C945D87F01B15795A9E1E1F5F8');
CREATE TABLE journal (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, cluster TEXT NOT NULL, event TEXT NOT NULL, node TEXT NOT NULL,
    details TEXT NOT NULL
) STRICT;
INSERT INTO "journal" VALUES(1,'2026-01-02T03:04:05Z','a','test','','{}');
INSERT INTO "journal" VALUES(2,'2026-01-02T03:04:05Z','b','test','','{}');
INSERT INTO "journal" VALUES(3,'2026-01-02T03:04:05Z','a','test','','{}');
INSERT INTO "journal" VALUES(4,'2026-01-02T03:04:05Z','b','test','','{}');
INSERT INTO "journal" VALUES(5,'2026-01-02T03:04:05Z','a','test','','{}');
INSERT INTO "journal" VALUES(6,'2026-01-02T03:04:05Z','a','issued','','{}');
INSERT INTO "journal" VALUES(7,'2026-01-02T03:04:05Z','a','test','','{}');
INSERT INTO "journal" VALUES(8,'2026-01-02T03:04:05Z','a','test','','{}');
CREATE TABLE names (cluster TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, PRIMARY KEY (cluster, name)) STRICT;
INSERT INTO "names" VALUES('a','10.0.0.5','worker');
INSERT INTO "names" VALUES('a','worker','worker');
CREATE TABLE records (cluster TEXT NOT NULL, node TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (cluster, node)) STRICT;
INSERT INTO "records" VALUES('a','gone','{"apiVersion": "enrollment.kubewright/v1alpha1", "certificates": [{"fingerprint": "ab", "notAfter": "2027-01-02T03:04:05Z", "purpose": "client", "serial": "1f"}], "changed": "", "cluster": "a", "issued": "2026-01-02T03:04:05Z", "key": "g", "kind": "JoinRecord", "lease": "", "names": [], "node": "gone", "protocol": "oneinfra/v1alpha1", "request": "u0", "state": "Left", "tunnelKey": ""}');
INSERT INTO "records" VALUES('a','worker','{"apiVersion": "enrollment.kubewright/v1alpha1", "certificates": [{"fingerprint": "ab", "notAfter": "2027-01-02T03:04:05Z", "purpose": "client", "serial": "1f"}], "changed": "", "cluster": "a", "issued": "2026-01-02T03:04:05Z", "key": "f", "kind": "JoinRecord", "lease": "", "names": ["10.0.0.5"], "node": "worker", "protocol": "oneinfra/v1alpha1", "request": "u1", "state": "Issued", "tunnelKey": ""}');
CREATE TABLE requests (
    cluster TEXT NOT NULL, digest TEXT NOT NULL, uid TEXT NOT NULL, until TEXT NOT NULL DEFAULT '', PRIMARY KEY (cluster, digest)
) STRICT;
INSERT INTO "requests" VALUES('a','d1','u1','2026-01-03T03:05:05Z');
CREATE TABLE tokens (
    cluster TEXT NOT NULL, id TEXT NOT NULL, secret BLOB NOT NULL, expires TEXT NOT NULL, description TEXT NOT NULL, PRIMARY KEY (cluster, id)
) STRICT;
INSERT INTO "tokens" VALUES('a','abcdef',X'DAE16EB4B010350BA1B3CE156D073CCB4EEA4651D8FBDC34DAF527DC3B3214B9490AF3FF76BA640EC2CF4F6B','2026-01-03T03:04:05Z','x');
INSERT INTO "tokens" VALUES('b','abcdef',X'D2240823D44A583F1000AFCF00BA80DBF7B5C8D00C0F415AE6D44094ABCDB6DBA1B265939FD53230A1E0E8C3','2026-01-03T03:04:05Z','x');
CREATE TABLE verdicts (cluster TEXT NOT NULL, uid TEXT NOT NULL, approved INTEGER NOT NULL, PRIMARY KEY (cluster, uid)) STRICT;
INSERT INTO "verdicts" VALUES('a','u9',1);
INSERT INTO "verdicts" VALUES('a','u8',0);
CREATE INDEX names_of_nodes ON names (cluster, node);
CREATE INDEX requests_until ON requests (until) WHERE until != '';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('journal',8);
COMMIT;
PRAGMA user_version = 2;
