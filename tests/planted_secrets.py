"""Kinds of secrets as jobs have them: text -> the part of it that must be nowhere afterwards."""

import base64

_MIXED = "q7Rt2Xz9Lm4Kc8Vb1Nw6Yp3Hd5Js0Fg2TuA4e"  # letters and digits as a generator mixes them
_LOW = "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432"
KINDS = {
    base64.b64encode(b'{"api_key": "hidden41"}').decode(): base64.b64encode(b'{"api_key": "hidden41"}').decode(),
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=azvalue8==;EndpointSuffix=x": "azvalue8", _MIXED: _MIXED,
    "-----BEGIN RSA PRIVATE KEY-----MIIBpemvalue39-----END RSA PRIVATE KEY-----": "MIIBpemvalue39",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtnFEMI", "--token=tk.short1": "tk.short1",
    "curl -H 'Authorization: Basic dXNlcjpwYXNzMjI='": "dXNlcjpwYXNzMjI", "{'private_key': 'privvalue6'}": "privvalue6",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl": "c2lnbmF0dXJl", "postgresql://u:dbpass19@h:5432/d": "dbpass19",
    "s3://b/x?X-Amz-Signature=amzsig12&X-Amz-Expires=1": "amzsig12", "--db-password=with space and & sign": "space and",
    "npm_plantednodevalue0123456789": "plantednodevalue0123456789", '{"client_secret": "clientvalue5"}': "clientvalue5",
    "wandb login 0123456789abcdef0123456789abcdef01": "89abcdef01", "LTAI5tAbcdefghijklmn69": "bcdefghijklmn69",
    "s3://b/x?a=1&X-Amz-Credential=amzcred13%2Fus": "amzcred13", "Authorization: Bearer bearervalue21": "bearervalue21",
    "abc8Q~abcdefghijklmnopqrstuvwxyz123456": "mnopqrstuvwxyz1", "sk-proj-abcdefghijklmnop1234": "abcdefghijklmnop1234",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv": "SyA1234567890", "glpat-abcdefgh1234567890ab": "abcdefgh1234567890ab",
    "Cookie: a=cook54; session=cook55": "session=cook55", "hf_plantedHuggingvalue32": "plantedHuggingvalue32",
    "machine h login u password netrcpw53": "netrcpw53", "https://d.example/api/webhooks/1/hook57": "hook57",
    "https://h/x?sv=1&sig=sasvalue14%3D": "sasvalue14", "os.environ['HF_TOKEN'] = 'inline45'": "inline45",
    "xoxb-123456789012-abcdef": "123456789012-abcdef", "WANDB_API_KEY=0123wandbvalue": "0123wandbvalue",
    "Invalid API key provided: badkey59": "badkey59", "curl --user me:curlpw56 https://h": "curlpw56",
    "AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE", "https://user17:pass17word@h/x": "pass17word",
    "--password=hunter2secret": "hunter2secret", 'password = "in the code7"': "in the code7", f"--api-key={_LOW}": _LOW,
    "if token == 'compared47':": "compared47", "passphrase: opensesame8": "opensesame8", f"github_pat_{_MIXED}": _MIXED,
    "invalid token 'told58abc'": "told58abc", "--wandb.key=dotkey60": "dotkey60", "--pwd=pwdvalue43": "pwdvalue43",
    "auth=('me', 'basic61pw')": "basic61pw", "ftp://u:pa@ss62pw@h/x": "ss62pw", "Using API key used68key": "used68key",
    "++secrets.hf=hydrasec50": "hydrasec50", "SLACK_WEBHOOK=https://h/x44": "h/x44", "?to=x%3Ftoken%3Durl49": "url49",
    "s3://A:w/63val@b/x": "63val", "<password>xml64pw</password>": "xml64pw", "--secret-key=sk1value": "sk1value",
    "('K_TOKEN', 'set65v')": "set65v", "DB_PASS=passvalue42": "passvalue42", "token: str = 'typed66'": "typed66",
    "password=\"it's67pw\"": "s67pw", f"ghp_{_MIXED}": _MIXED, "GITHUB_PAT=pat69": "pat69", "psk=wpa70": "wpa70",
    "add('--token', type=str, default='arg71')": "arg71", "**Password:** mark72": "mark72",
    "?session_id=session73": "session73",
    "sshpass -p hunter76 ssh": "hunter76", "val token: String = 'kot77'": "kot77", "password <- 'rlang78'": "rlang78",
    "token in ('in79tok', b)": "in79tok", "docker login -u me -p dock80pw": "dock80pw", "пароль=rus81pw": "rus81pw",
    "os.environ['X_SECRET'] = f'fst82'": "fst82", "PASSWORD('sql83pw')": "sql83pw", "-storepass kts84pw": "kts84pw",
    "SecretStr('wrapped74')": "wrapped74", f"key-{_LOW[:32]}": _LOW[:32], "bind_pw: ldap75": "ldap75",
}  # fmt: skip
